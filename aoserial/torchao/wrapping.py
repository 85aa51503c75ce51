"""torchao's tensors inside torchao's tensors, and what a wrapper says of the weight it holds.

A wrapper has no values of its own: it says how the activation is treated before it meets the weight
inside. Its step leaves the weight's own record, with what it said as further fields. Torch-free.
"""

from __future__ import annotations

from collections.abc import Mapping

from aoserial.errors import FieldError
from aoserial.record import Record
from aoserial.schema import (
    FrozenMap,
    Nested,
    Schema,
    Symbol,
    Value,
    attribute,
    optional_attribute,
    optional_tensor,
)
from aoserial.storage import Part

# what wrappers said; no file has these fields, and our types have them by the same names
SETTINGS = (
    optional_attribute("activation", "object:aoserial.Activation?", None, doc="a wrapper's"),
    optional_attribute(
        "act_pre_scale_op",
        "enum:aoserial.ScaleOp",
        Symbol("aoserial.ScaleOp", "multiply"),
        doc="a wrapper's",
    ),
    optional_tensor("act_scale", doc="a wrapper's"),
    optional_tensor("act_zero_point", doc="a wrapper's"),
    optional_tensor("act_pre_scale", doc="a wrapper's"),
)
_ATTRIBUTES = tuple(field.name for field in SETTINGS if field.kind == "attribute")
_PARTS = tuple(field.name for field in SETTINGS if field.kind == "tensor")

INNER = Schema(
    type="torchao.InnerTensor",
    version=1,
    kind="object",
    fields=(
        attribute("type", "str"),
        attribute("version", "int"),
        attribute("shape", "list[int]"),
        attribute("dtype", "dtype"),
        attribute("fields", "any", doc="pairs of name and value"),
    ),
    doc="a tensor inside another, whose parts are parts of that, with dotted names",
)


def inner_of(record: Record) -> Nested:
    """A record as an attribute of the record that holds it, which holds its parts, too."""
    return Nested(
        INNER.type,
        1,
        FrozenMap(
            type=record.type,
            version=record.version,
            shape=record.shape,
            dtype=record.dtype,
            fields=tuple(record.attributes.items()),
        ),
    )


def hoisted(holder: Record, name: str) -> Record:
    """The record of the tensor in field `name`, without what the holder says of it.

    Raises:
        FieldError: the field holds no tensor that is known.
    """
    inner = holder.attributes.get(name)
    if not isinstance(inner, Nested) or inner.type != INNER.type:
        raise FieldError("holds no quantized tensor").locate(field=name)
    given = inner.fields
    return Record(
        type=str(given["type"]),
        version=given["version"],  # type: ignore[arg-type]  # the object was resolved
        shape=given["shape"],  # type: ignore[arg-type]
        dtype=str(given["dtype"]),
        attributes=FrozenMap(dict(given["fields"])),  # type: ignore[arg-type]
        parts=inside(holder.parts, name),
    )


def inside(parts: Mapping[str, Part], name: str) -> dict[str, Part]:
    """The parts of what is in the field `name`, by their names there."""
    prefix = f"{name}."
    return {
        part_name.removeprefix(prefix): part
        for part_name, part in parts.items()
        if part_name.startswith(prefix)
    }


def settings(record: Record) -> tuple[dict[str, Value], dict[str, Part]]:
    """What wrappers said of a record's weight: attributes and parts, by our names."""
    attributes = {name: record.attributes[name] for name in _ATTRIBUTES if _says(record, name)}
    return attributes, {name: record.parts[name] for name in _PARTS if name in record.parts}


def carried(holder: Record, weight: Record) -> Record:
    """The weight, with what wrappers around its holder said.

    Raises:
        FieldError: a wrapper around the holder and one inside it say the same thing twice.
    """
    attributes, parts = settings(holder)
    already = {*settings(weight)[0], *settings(weight)[1]}
    if twice := sorted(already & {*attributes, *parts}):
        raise FieldError("is set by two wrappers around one weight").locate(field=twice[0])
    return weight.set(**attributes).put(**parts)


def _says(record: Record, name: str) -> bool:
    value = record.attributes.get(name)
    return value is not None and value != Symbol("aoserial.ScaleOp", "multiply")
