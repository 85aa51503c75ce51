"""Attribute values between Python and a file: live objects ⇄ the plain values of `schema.values`.

`torch.bfloat16` ⇄ "bfloat16", a member of a registered enum ⇄ `Symbol`, an instance of a registered
dataclass ⇄ `Nested`, lists and tuples ⇄ tuples. What no class is registered for stays as it is, and
so does the name of a dtype that torch lacks, such as "float6_e3m2fn".
"""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from typing import TYPE_CHECKING, Any

import torch

from aoserial.errors import FieldError
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.classes import CLASSES, Classes, EnumClass, ObjectClass
from aoserial.tensors.hints import Hint

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_PLAIN = frozenset({type(None), bool, int, float, str})


def dump(value: Any, classes: Classes = CLASSES) -> Value:
    """The plain value of a live one.

    Raises:
        FieldError: an object or enum that is not registered, or no plain data at all.
    """
    kind = type(value)
    if kind in _PLAIN or (kind is tuple and all(type(item) in _PLAIN for item in value)):
        return value  # type: ignore[no-any-return]  # nearly all values, so first
    entry = classes.of(kind)  # before their subclasses: an enum may be a str too
    if isinstance(entry, EnumClass):
        return Symbol(entry.schema.type, value.name)
    if isinstance(entry, ObjectClass):
        return _dump_object(value, entry, classes)
    if isinstance(value, Enum):
        raise FieldError(
            f"{type(value).__qualname__}.{value.name} is of an enum that is not registered: "
            f"decorate it with @aoserial.register"
        )
    if isinstance(value, int | float | str | Nested | Symbol):  # of subclasses too
        return value
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, list | tuple):
        return tuple(dump(item, classes) for item in value)
    raise FieldError(
        f"a file cannot hold a {type(value).__qualname__}; "
        f"a dataclass can be registered with @aoserial.register"
    )


def load(value: Value, hint: Hint, classes: Classes = CLASSES) -> Any:
    """The live value of a plain one, as an attribute annotated so holds it."""
    text = hint.text.removesuffix("?")
    if isinstance(value, tuple):
        inner = text.removeprefix("list[").removesuffix("]") if text.startswith("list[") else "any"
        item = Hint(text=inner, sequence=hint.sequence)
        return hint.sequence(load(entry, item, classes) for entry in value)
    if isinstance(value, Symbol):
        found = classes.find(value.enum)
        if isinstance(found, EnumClass) and value.name in found.cls.__members__:
            return found.cls[value.name]
        return value
    if isinstance(value, Nested):
        return _load_object(value, classes)
    if text == "dtype" and isinstance(value, str):
        return getattr(torch, value, value)
    return value


def freeze(value: Any) -> Any:
    """A live value that hashes: lists become tuples."""
    return tuple(freeze(item) for item in value) if isinstance(value, list | tuple) else value


def thaw(value: Any, hint: Hint) -> Any:
    """Undoes `freeze` as the annotation says."""
    if isinstance(value, tuple) and hint.sequence is list:
        return [thaw(item, hint) for item in value]
    return value


def own_copy(value: Any, hint: Hint) -> Any:
    """An attribute's value for one more tensor: a list of its own, since lists can be changed."""
    return thaw(freeze(value), hint) if hint.sequence is list else value


def _dump_object(value: DataclassInstance, entry: ObjectClass, classes: Classes) -> Nested:
    """What is at its absence-default is left out, so that older readers know every name."""
    held = {field.name: dump(getattr(value, field.name), classes) for field in fields(value)}
    absent = {field.name: field.absent for field in entry.schema.attributes}
    written = {name: item for name, item in held.items() if item != absent[name]}
    return Nested(entry.schema.type, entry.schema.version, FrozenMap(written))


def _load_object(value: Nested, classes: Classes) -> Any:
    """The dataclass, or the value itself where this program has no class that fits it."""
    entry = classes.find(value.type)
    if not isinstance(entry, ObjectClass) or value.version != entry.schema.version:
        return value
    if not set(value.fields) <= set(entry.hints):  # unknown fields of an ignorable group
        return value
    given = {name: load(item, entry.hints[name], classes) for name, item in value.fields.items()}
    try:
        return entry.cls(**given)
    except (TypeError, ValueError) as error:
        raise FieldError(f"{entry.cls.__qualname__} does not accept {value}: {error}") from error
