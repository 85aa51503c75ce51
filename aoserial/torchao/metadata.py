"""Records of torchao's types as the metadata that torchao 0.15 and later read. Torch-free."""

from __future__ import annotations

import json
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping

from aoserial.errors import CollisionError, TensorNameError, UnsupportedTensorError
from aoserial.record import Record, key_prefix, part_key
from aoserial.schema import REGISTRY, Nested, Schema, Symbol, Value
from aoserial.schema.values import Json
from aoserial.storage.dtypes import BY_NAME
from aoserial.torchao.types import WRITTEN

# what torchao's writer (0.15 to 0.18) lets through and its reader does not know
_UNREADABLE = {
    "torchao.PerBlock",
    "torchao.PerGroup",
    "torchao.PerAxis",
    "torchao.PerToken",
    "torchao.IntxUnpackedToInt8TensorActivationQuantization",
}

PLAIN = json.dumps({"_type": "Tensor"})


def describe(record: Record) -> str:
    """The metadata entry of a record of one of torchao's types, every attribute spelled out."""
    kind = record.type.removeprefix("torchao.")
    schema = WRITTEN[kind].schema
    optional = [field.name for field in schema.tensors if not field.required]
    required = [field.name for field in schema.tensors if field.required]
    return json.dumps(
        {
            "_type": kind,
            "_data": _fields(schema, record.attributes),
            "_tensor_data_names": [name for name in optional + required if name in record.parts],
        }
    )


def _fields(schema: Schema, values: Mapping[str, Value]) -> dict[str, Json]:
    return {
        field.name: _encode(values.get(field.name, field.absent), field.type)
        for field in schema.attributes
    }


def _encode(value: object, type_text: str) -> Json:
    match value:
        case tuple():
            return [_encode(item, "any") for item in value]
        case Symbol():
            return {"_type": value.enum.removeprefix("torchao."), "_data": value.name}
        case Nested():
            schema = REGISTRY[value.type].head
            return {
                "_type": value.type.removeprefix("torchao."),
                "_data": _fields(schema, value.fields),
            }
        case str() if type_text.startswith("dtype") or value in BY_NAME:
            return {"_type": "torch.dtype", "_data": value}
        case _:
            return value


def check_readable(names: Iterable[str], records: Mapping[str, Record]) -> None:
    """Holds names against what torchao's own reader (0.15 to 0.18) makes of them.

    It takes every key that begins with a tensor's prefix for a part of it, and drops the tensor
    without a word when it counts more of them than the tensor has; it fails on a name without a
    dot.

    Raises:
        TensorNameError: a name without a dot.
        CollisionError: a tensor that torchao would lose.
        UnsupportedTensorError: settings that torchao writes and cannot read back.
    """
    names = list(names)
    for name in names:
        if "." not in name:
            raise TensorNameError(
                "has no dot, and torchao's reader fails on such a name; save it with a prefix"
            ).locate(name=name)
    made = [part_key(name, part) for name, record in records.items() for part in record.parts]
    keys = sorted([*names, *made])
    for name, record in records.items():
        if unreadable := _UNREADABLE.intersection(_mentions(record.attributes.values())):
            raise UnsupportedTensorError(
                f"torchao's reader does not know {', '.join(sorted(unreadable))}"
            ).locate(name=name)
        prefix = key_prefix(name)
        found = bisect_left(keys, prefix + "\U0010ffff") - bisect_left(keys, prefix)
        if found != len(record.parts):
            raise CollisionError(
                f"torchao's reader would lose it: {found} names begin with {prefix!r:.200}, and it "
                f"has {len(record.parts)} parts"
            ).locate(name=name)


def _mentions(values: Iterable[Value]) -> Iterator[str]:
    """The ids of all objects and enums inside some values."""
    for value in values:
        if isinstance(value, Symbol):
            yield value.enum
        elif isinstance(value, Nested):
            yield value.type
            yield from _mentions(value.fields.values())
