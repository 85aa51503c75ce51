"""`field(...)`: what a field says beyond its annotation, and the schema field the two make."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from aoserial.errors import SchemaError
from aoserial.schema import MISSING, Field, Missing, Value
from aoserial.schema.types import conform
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import Classes, EnumClass, ObjectClass, owner
from aoserial.tensors.hints import Hint, evaluate
from aoserial.tensors.live import dump


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldSpec:
    """The arguments of `field(...)`."""

    default: Any = MISSING
    absent: Any = MISSING
    dtypes: tuple[str | torch.dtype, ...] = ()
    shape: tuple[str | int, ...] | None = None
    added_in: int = 1
    renamed_from: tuple[str, ...] = ()
    removed_in: int | None = None
    doc: str = ""


def field(
    *,
    default: Any = MISSING,
    absent: Any = MISSING,
    dtypes: Sequence[str | torch.dtype] = (),
    shape: Sequence[str | int] | None = None,
    added_in: int = 1,
    renamed_from: Sequence[str] | str = (),
    removed_in: int | None = None,
    doc: str = "",
) -> Any:
    """Declares a field of a `VersionedTensor` where a plain default does not say enough.

    `x: int = 3` is short for `x: int = field(default=3)`.

    Args:
        default: what a new object gets when the caller says nothing.
        absent: what the field's absence in a file means, which is frozen with the schema; the
            default, unless given. A field with neither is required, and so is a tensor whose
            annotation does not allow None.
        dtypes: of a tensor: those it may have; any unless given.
        shape: of a tensor: a rule, as `("...", "N", "K/2")` or `aoserial.BLOCKS`.
        added_in: the version that introduced the field.
        renamed_from: older names, each still read.
        removed_in: the version that removed the field; its name stays reserved.
        doc: one line for people.
    """
    return FieldSpec(
        default=default,
        absent=absent,
        dtypes=tuple(dtypes),
        shape=None if shape is None else tuple(shape),
        added_in=added_in,
        renamed_from=(renamed_from,) if isinstance(renamed_from, str) else tuple(renamed_from),
        removed_in=removed_in,
        doc=doc,
    )


def schema_field(name: str, hint: Hint, spec: FieldSpec, classes: Classes) -> Field:
    """The field of a schema that an annotation and its spec declare.

    Raises:
        SchemaError: the two contradict each other.
        FieldError: a default of another type than the annotation's.
    """
    absent = spec.default if spec.absent is MISSING else spec.absent
    if hint.tensor and hint.optional and absent is MISSING:
        absent = None
    if hint.tensor and not hint.optional and absent is not MISSING:
        raise SchemaError(f"tensor {name!r} has a default; annotate it torch.Tensor | None")
    if not hint.tensor and (spec.dtypes or spec.shape is not None):
        raise SchemaError(f"{name!r} is an attribute: dtypes and shape are for tensors")
    dtypes = (d if isinstance(d, str) else dtype_name(d) for d in spec.dtypes)
    return Field(
        name=name,
        kind="tensor" if hint.tensor else "attribute",
        type=hint.text,
        dtypes=tuple(dtypes),
        shape=None if spec.shape is None else tuple(str(term) for term in spec.shape),
        absent=absent if hint.tensor else _plain(absent, hint, classes),
        default=MISSING if spec.absent is MISSING else _plain(spec.default, hint, classes),
        added_in=spec.added_in,
        removed_in=spec.removed_in,
        renamed_from=spec.renamed_from,
        doc=spec.doc,
    )


def check_name(name: str, cls: type) -> None:
    """Raises `SchemaError` for a field name that would hide something every tensor has."""
    if name.startswith("_"):
        raise SchemaError(f"{owner(cls)} declares a field {name!r}, which is no public name")
    hidden: type = VersionedTensor if issubclass(cls, VersionedTensor) else torch.Tensor
    if hasattr(hidden, name):
        raise SchemaError(
            f"{owner(cls)} declares a field {name!r}, but every tensor has an attribute of that "
            f"name; choose another"
        )


def type_text(classes: Classes) -> Callable[[type], str | None]:
    """A look-up of the type text of registered enums and dataclasses."""

    def text(cls: type) -> str | None:
        entry = classes.of(cls)
        if isinstance(entry, EnumClass):
            return f"enum:{entry.schema.type}"
        return f"object:{entry.schema.type}" if isinstance(entry, ObjectClass) else None

    return text


def resolve_annotation(annotation: object, cls: type) -> object:
    """An annotation of `cls`, evaluated where it stands as text.

    Raises:
        SchemaError: it names something that the module of `cls` does not hold.
    """
    module = sys.modules.get(cls.__module__)
    try:
        return evaluate(annotation, {} if module is None else vars(module))
    except (NameError, AttributeError) as error:
        raise SchemaError(
            f"{owner(cls)}: cannot resolve the annotation {annotation!r}: {error}"
        ) from error


def first_line(cls: type) -> str:
    """The first line of a class's own docstring, not that which dataclass makes."""
    own: str = vars(cls).get("__doc__") or ""
    return "" if own.startswith(f"{cls.__name__}(") else own.strip().partition("\n")[0]


def _plain(value: Any, hint: Hint, classes: Classes) -> Value | Missing:
    return MISSING if value is MISSING else conform(hint.text, dump(value, classes))
