"""torchao's own live tensors as records, without importing torchao."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

import torch

from aoserial.errors import UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.storage import TensorPart
from aoserial.storage.dtypes import dtype_name
from aoserial.torchao.types import WRITTEN


def is_live(value: object) -> bool:
    """Whether this is a tensor of one of the classes that torchao's safetensors layout has."""
    cls = type(value)
    return (
        isinstance(value, torch.Tensor)
        and cls.__name__ in WRITTEN
        and cls.__module__.partition(".")[0] == "torchao"
    )


def to_torchao_record(tensor: torch.Tensor) -> Record:
    """The record of a live tensor of torchao's; its parts are the tensor's own, not copies.

    Raises:
        UnsupportedTensorError: an attribute that torchao's safetensors layout cannot hold.
    """
    kind = type(tensor).__name__
    schema = WRITTEN[kind].schema
    parts = {}
    for field in schema.tensors:
        held = getattr(tensor, field.name, None)
        if held is not None:
            parts[field.name] = TensorPart(held)
    known = [field.name for field in schema.attributes if hasattr(tensor, field.name)]
    return Record(
        type=schema.type,
        version=schema.version,
        shape=tuple(tensor.shape),
        dtype=dtype_name(tensor.dtype),
        attributes=FrozenMap({name: _value(name, getattr(tensor, name)) for name in known}),
        parts=parts,
    )


def _value(name: str, value: Any) -> Value:
    """A live attribute as plain data, its objects and enums by the names of their classes."""
    cls = type(value)
    if isinstance(value, Enum):  # before str, since some of torchao's are both
        return Symbol(f"torchao.{cls.__name__}", value.name)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if hasattr(value, "_asdict"):  # a NamedTuple, before tuple
        return _nested(cls, value._asdict())
    if isinstance(value, list | tuple):
        return tuple(_value(name, item) for item in value)
    if is_dataclass(value):
        return _nested(cls, {field.name: getattr(value, field.name) for field in fields(value)})
    raise UnsupportedTensorError(
        f"attribute {name!r} is a {cls.__module__}.{cls.__qualname__}, which no file can hold"
    )


def _nested(cls: type, held: dict[str, Any]) -> Nested:
    inside = {name: _value(name, item) for name, item in held.items()}
    return Nested(f"torchao.{cls.__name__}", 1, FrozenMap(inside))
