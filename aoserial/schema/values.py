"""The plain data an attribute may hold, and its JSON. Torch-free.

A value is None, a bool, int, float, str, a tuple of values, a `Nested` object or a `Symbol`. A
dtype is its torch name. All are immutable, hashable and comparable, so they can stand in the
metadata of a compiled graph; lists are frozen to tuples on the way in.

In JSON, what JSON has is written as it is, and the rest as an object with one `$` key:
`{"$object": id, "version": n, "fields": {…}}`, `{"$enum": id, "name": symbol}`,
`{"$float": "nan"}`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

from aoserial.errors import EnvelopeError

Json: TypeAlias = Any
Value: TypeAlias = "bool | int | float | str | tuple[Value, ...] | Nested | Symbol | None"

MAX_DEPTH = 32  # nesting of values in a file; real ones reach 4
MAX_VERSION = 2**31 - 1


class Missing:
    """The type of `MISSING`: not given at all, which is not the same as None."""

    _one: Missing | None = None

    def __new__(cls) -> Missing:
        cls._one = cls._one or super().__new__(cls)
        return cls._one

    def __repr__(self) -> str:
        return "MISSING"

    def __bool__(self) -> bool:
        return False

    def __reduce__(self) -> str:
        return "MISSING"


MISSING = Missing()


class FrozenMap(Mapping[str, Value]):
    """An immutable, hashable mapping that keeps its order; equality ignores it."""

    __slots__ = ("_hash", "_items")

    def __init__(self, items: Mapping[str, Value] | None = None, /, **more: Value) -> None:
        self._items: dict[str, Value] = {**(items or {}), **more}
        self._hash: int | None = None

    def __getitem__(self, key: str) -> Value:
        return self._items[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        if self._hash is None:
            self._hash = hash(frozenset(self._items.items()))
        return self._hash

    def __eq__(self, other: object) -> bool:
        if isinstance(other, FrozenMap):
            return self._items == other._items
        return self._items == other if isinstance(other, dict) else NotImplemented

    def __repr__(self) -> str:
        return repr(self._items)

    def replace(self, **changes: Value) -> FrozenMap:
        return FrozenMap(self._items, **changes)

    def without(self, *keys: str) -> FrozenMap:
        return FrozenMap({key: value for key, value in self._items.items() if key not in keys})


@dataclass(frozen=True, slots=True)
class Nested:
    """A versioned attribute object as plain data: its id, version and fields."""

    type: str
    version: int
    fields: FrozenMap

    def __getitem__(self, name: str) -> Value:
        return self.fields[name]

    def replace(self, **changes: Value) -> Self:
        return replace(self, fields=self.fields.replace(**changes))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.type}@{self.version}({inside})"


@dataclass(frozen=True, slots=True)
class Symbol:
    """A member of a registered enum, by name."""

    enum: str
    name: str

    def __repr__(self) -> str:
        return f"{self.enum}.{self.name}"


def freeze(value: object) -> Value:
    """`value` with lists as tuples, all the way down.

    Raises:
        TypeError: something that is not plain data.
    """
    if value is None or isinstance(value, bool | int | float | str | Nested | Symbol):
        return value
    if isinstance(value, list | tuple):  # torch.Size is a tuple
        return tuple(freeze(item) for item in value)
    raise TypeError(f"{type(value).__name__} is not plain data that a file can hold")


def encode(value: Value) -> Json:
    """The JSON form of a value."""
    match value:
        case float() if not math.isfinite(value):
            return {"$float": repr(value)}
        case tuple():
            return [encode(item) for item in value]
        case Nested():
            fields = {name: encode(item) for name, item in value.fields.items()}
            return {"$object": value.type, "version": value.version, "fields": fields}
        case Symbol():
            return {"$enum": value.enum, "name": value.name}
        case _:
            return value


def decode(data: Json, *, depth: int = 0) -> Value:
    """The value of a JSON form.

    Raises:
        EnvelopeError: a form that `encode` never writes, or nesting deeper than `MAX_DEPTH`.
    """
    if depth > MAX_DEPTH:
        raise EnvelopeError(f"attribute values are nested more than {MAX_DEPTH} deep")
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return tuple(decode(item, depth=depth + 1) for item in data)
        case {"$float": "nan" | "inf" | "-inf" as text, **rest} if not rest:
            return float(text)
        case {"$enum": str(enum), "name": str(name), **rest} if not rest:
            return Symbol(enum, name)
        case {"$object": str(kind), "version": version, "fields": dict(fields), **rest} if not rest:
            values = {str(name): decode(item, depth=depth + 1) for name, item in fields.items()}
            return Nested(kind, check_version(version), FrozenMap(values))
        case _:
            raise EnvelopeError(f"not an attribute value: {str(data)[:80]!r}")


def check_version(version: object) -> int:
    """`version` if it is an integer from 1 to 2³¹ - 1 (a bool is not an integer)."""
    if type(version) is int and 1 <= version <= MAX_VERSION:
        return version
    raise EnvelopeError(
        f"a schema version must be an integer from 1 to {MAX_VERSION}, found {version!r:.80}"
    )
