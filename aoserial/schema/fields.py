"""Fields of a schema: tensors and attributes, with what their absence means. Torch-free."""

from __future__ import annotations

import keyword
from dataclasses import dataclass
from typing import Literal

from aoserial.errors import SchemaError
from aoserial.schema.shapes import Rule, check_rule
from aoserial.schema.types import check_type, conform
from aoserial.schema.values import MISSING, Missing, Value
from aoserial.storage.dtypes import BY_NAME

Kind = Literal["tensor", "attribute"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Field:
    """One field of a type.

    Attributes:
        name: an identifier, or dotted ones for what lies inside another tensor
            (`tensor_impl.scale`); part of the file format.
        kind: a `tensor` becomes a part, an `attribute` is data in the header.
        type: of an attribute, in the grammar of `schema.types`.
        dtypes: of a tensor: the torch names it may have; empty allows all.
        shape: of a tensor: a rule of `schema.shapes`; None allows all.
        when: of an optional tensor: an enum attribute and the symbols of it that ask for this
            tensor; it must then be there, and must not be there with any other symbol.
        absent: what absence in a file means, frozen with the schema; `MISSING` makes the field
            required. A tensor's absence can only mean None.
        default: what a new object gets when the caller says nothing; `absent` unless given.
        added_in: the version that introduced the field.
        removed_in: the version that removed it; from there on the name is reserved.
        renamed_from: older names of the field, each still read.
        doc: one line for people.
    """

    name: str
    kind: Kind
    type: str = "any"
    dtypes: tuple[str, ...] = ()
    shape: Rule | None = None
    when: tuple[str, tuple[str, ...]] | None = None
    absent: Value | Missing = MISSING
    default: Value | Missing = MISSING
    added_in: int = 1
    removed_in: int | None = None
    renamed_from: tuple[str, ...] = ()
    doc: str = ""

    @property
    def required(self) -> bool:
        return self.absent is MISSING and not self.removed

    @property
    def removed(self) -> bool:
        return self.removed_in is not None

    @property
    def new_object_default(self) -> Value | Missing:
        return self.absent if self.default is MISSING else self.default

    def __post_init__(self) -> None:
        for name in (self.name, *self.renamed_from):
            if not all(map(str.isidentifier, name.split("."))) or keyword.iskeyword(name):
                raise SchemaError(f"{name!r} cannot name a field: it is no identifier")
        if self.name in self.renamed_from:
            raise SchemaError(f"field {self.name!r} cannot be renamed from itself")
        if self.kind == "tensor":
            self._check_tensor()
        else:
            check_type(self.type)
            for default in (self.absent, self.default):
                if not isinstance(default, Missing):
                    conform(self.type, default)

    def _check_tensor(self) -> None:
        for dtype in self.dtypes:
            if dtype not in BY_NAME:
                raise SchemaError(f"field {self.name!r}: {dtype!r} is not a dtype a file can hold")
        if self.shape is not None:
            check_rule(self.shape)
        if self.absent is not MISSING and self.absent is not None:
            raise SchemaError(f"field {self.name!r}: the absence of a tensor can only mean None")
        if self.when is not None and self.absent is MISSING:
            raise SchemaError(f"field {self.name!r} is required, so there is no `when` to it")


def tensor(name: str, *dtypes: str, shape: Rule | None = None, doc: str = "") -> Field:
    """A required tensor."""
    return Field(name=name, kind="tensor", dtypes=dtypes, shape=shape, doc=doc)


def optional_tensor(
    name: str,
    *dtypes: str,
    shape: Rule | None = None,
    when: tuple[str, tuple[str, ...]] | None = None,
    doc: str = "",
) -> Field:
    """A tensor that may be absent, which means None."""
    return Field(
        name=name, kind="tensor", dtypes=dtypes, shape=shape, when=when, absent=None, doc=doc
    )


def attribute(name: str, type: str, *, doc: str = "") -> Field:  # noqa: A002
    """A required attribute."""
    return Field(name=name, kind="attribute", type=type, doc=doc)


def optional_attribute(name: str, type: str, absent: Value, *, doc: str = "") -> Field:  # noqa: A002
    """An attribute whose absence means `absent`."""
    return Field(name=name, kind="attribute", type=type, absent=absent, doc=doc)
