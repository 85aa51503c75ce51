"""Schemas: what a (type, version) looks like in a file. Torch-free, frozen once released."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field as dataclass_field
from functools import cached_property
from typing import Literal

from aoserial.errors import SchemaError
from aoserial.schema.fields import Field
from aoserial.schema.shapes import Rule, check_rule
from aoserial.schema.values import MAX_VERSION

# what codes and scales multiply out to; anything narrower would be cut without a word
FLOATING = ("float16", "bfloat16", "float32", "float64")
_TYPE_ID = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+", re.ASCII)


def check_type_id(text: str) -> str:
    """`text` if it is a type id: two or more dotted identifiers (`acme.Int4Tensor`)."""
    if _TYPE_ID.fullmatch(text) and len(text) <= 200:
        return text
    raise SchemaError(f"{text!r} is not a type id: expected dotted identifiers, as acme.Int4Tensor")


@dataclass(frozen=True, kw_only=True)
class Schema:
    """One version of a tensor type, or of an object that is an attribute of one.

    Attributes:
        type: the stable id; never a module path.
        version: 1, 2, 3 …
        kind: `tensor`, or `object` (which has no tensor fields and no shape of its own).
        fields: in declaration order, which has no meaning in a file.
        dims: a rule that names the dimensions of the logical shape, None for any.
        logical_dtypes: what the tensor may be said to stand for; for codes and scales, which is
            what nearly all types hold, that is a floating-point dtype of two bytes or more.
        ignorable: prefixes of field names; a reader that does not know a field of such a group
            may ignore it (and keeps it). Its author makes that promise, not the reader's user.
        holds: prefixes of the parts of other tensors inside this one, which may have any names.
        doc: one line for people.
    """

    type: str
    version: int
    kind: Literal["tensor", "object"] = "tensor"
    fields: tuple[Field, ...] = ()
    dims: Rule | None = None
    logical_dtypes: tuple[str, ...] = FLOATING
    ignorable: tuple[str, ...] = ()
    holds: tuple[str, ...] = ()
    doc: str = ""

    def __post_init__(self) -> None:
        check_type_id(self.type)
        if not 1 <= self.version <= MAX_VERSION:
            raise SchemaError(f"{self.type}: version {self.version} is not from 1 to {MAX_VERSION}")
        if self.dims is not None:
            check_rule(self.dims)
        names = [name for field in self.fields for name in (field.name, *field.renamed_from)]
        if twice := {name for name in names if names.count(name) > 1}:
            raise SchemaError(f"{self}: fields declared twice: {', '.join(sorted(twice))}")
        for field in self.fields:
            if self.kind == "object" and field.kind == "tensor":
                raise SchemaError(f"{self}: an attribute object has no tensors ({field.name})")
            if max(field.added_in, field.removed_in or 0) > self.version:
                raise SchemaError(f"{self}: field {field.name} speaks of a later version")
            self._check_condition(field)

    def _check_condition(self, field: Field) -> None:
        """A condition that names no enum attribute would never ask, or never allow."""
        if field.when is None or field.removed:
            return
        name, symbols = field.when
        asked = next((one for one in self.attributes if one.name == name), None)
        if asked is None:
            raise SchemaError(
                f"{self}: field {field.name} is there when {name!r} says so, which is no attribute "
                "of the type; name one that is an enum"
            )
        if not asked.type.startswith("enum:"):
            raise SchemaError(
                f"{self}: field {field.name} is there when {name!r} says so, which is "
                f"{asked.type}, not an enum"
            )
        if not symbols:
            raise SchemaError(
                f"{self}: field {field.name} is there for no symbol of {name!r}: list those that "
                "ask for it"
            )

    def __str__(self) -> str:
        return f"{self.type}@{self.version}"

    @cached_property
    def by_name(self) -> Mapping[str, Field]:
        """The fields by every name a file may use: their own and their older ones."""
        return {name: field for field in self.fields for name in (field.name, *field.renamed_from)}

    @cached_property
    def live_fields(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if not field.removed)

    @cached_property
    def tensors(self) -> tuple[Field, ...]:
        return tuple(field for field in self.live_fields if field.kind == "tensor")

    @cached_property
    def attributes(self) -> tuple[Field, ...]:
        return tuple(field for field in self.live_fields if field.kind == "attribute")

    def is_ignorable(self, name: str) -> bool:
        return name.startswith(self.ignorable)


@dataclass(frozen=True, kw_only=True)
class EnumSchema:
    """An enum whose members appear in files by name.

    Attributes:
        type: the stable id.
        symbols: every name, with a line on what it means; a name is never reused.
        fallback: the symbol that stands for one a newer writer added; None refuses such a file.
    """

    type: str
    symbols: Mapping[str, str] = dataclass_field(default_factory=dict)
    fallback: str | None = None
    doc: str = ""

    def __post_init__(self) -> None:
        check_type_id(self.type)
        if self.fallback is not None and self.fallback not in self.symbols:
            raise SchemaError(f"{self.type}: fallback {self.fallback!r} is not one of its symbols")

    def __str__(self) -> str:
        return self.type
