"""Comparing trees of values: types, contents, and what is one object in several places."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator

from aoserial.storage.pickle import (
    ArrayPart,
    EnumValue,
    ExtensionCode,
    Key,
    Name,
    ObjectValue,
    ParameterValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    StoragePart,
    TensorSubclass,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
)
from aoserial.storage.pickle.dtypes import ITEMSIZES
from aoserial.storage.pickle.storages import Storage
from support.tensors import as_bytes

# Compared by value: whether two places have one of these between them means nothing
VALUES = (type(None), bool, int, float, complex, str, bytes, Name, ExtensionCode)
VALUES += (TorchDtype, TorchLayout, TorchDevice)


def assert_same(left: object, right: object, *, bytes_too: bool = True) -> None:
    """Raises AssertionError unless the trees are the same, shared objects and storages included."""
    Comparison(bytes_too).compare(left, right)


class Comparison:
    def __init__(self, bytes_too: bool) -> None:
        self.bytes_too = bytes_too
        self.there: dict[int, object] = {}
        self.back: dict[int, object] = {}
        self.shifts: dict[int, int] = {}

    def compare(self, left: object, right: object) -> None:
        todo = [("root", left, right)]
        while todo:
            where, one, other = todo.pop()
            assert type(one) is type(other), f"{where}: {one!r:.80} became {other!r:.80}"
            if isinstance(one, VALUES):
                assert exact(one) == exact(other), f"{where}: {one!r:.80} became {other!r:.80}"
            elif one != () and not self.met(where, one, other):
                pairs = list(zip(inside(one), inside(other), strict=True))
                todo += [(f"{where}.{name}", a, b) for (name, a), (_, b) in reversed(pairs)]
                if isinstance(one, StoragePart):
                    self.compare_parts(where, one, other)

    def met(self, where: str, one: object, other: object) -> bool:
        """Whether the pair was met; what is one object here must be one there."""
        known = id(one) in self.there
        assert known == (id(other) in self.back), f"{where}: shared in one of the trees only"
        if known:
            assert self.there[id(one)] is other, f"{where}: not the same as where it was met first"
        self.there[id(one)] = other
        self.back[id(other)] = one
        return known

    def compare_parts(self, where: str, one: StoragePart, other: StoragePart) -> None:
        if math.prod(one.shape):
            shift = (one.offset - other.offset) * ITEMSIZES[one.dtype]
            assert self.shifts.setdefault(id(one.storage), shift) == shift, where
            if self.bytes_too:
                assert one.span == other.span, where
                assert as_bytes(one.read()).equal(as_bytes(other.read())), where


def exact(value: object) -> object:
    if type(value) is float:
        return struct.pack(">d", value)
    return (exact(value.real), exact(value.imag)) if type(value) is complex else value


def inside(value: object) -> Iterator[tuple[str, object]]:
    """What a value is made of, by name and in order."""
    match value:
        case dict():
            for key, child in value.items():
                yield "key", key
                yield str(key), child
            if isinstance(value, StateDict):
                yield "attributes", value.attributes
        case bytearray():
            yield "bytes", bytes(value)
        case list() | tuple():
            yield from ((str(at), child) for at, child in enumerate(value))
        case set() | frozenset():
            plain = [member for member in value if type(member) is not Key]
            keyed = [member for member in value if type(member) is Key]
            yield "members", tuple(sorted(plain, key=lambda member: (str(type(member)), member)))
            yield "keys", tuple(sorted(keyed, key=lambda key: key.number))
        case StoragePart():
            yield from attributes(value, "dtype", "shape", "stride", "contiguous", "requires_grad")
            yield from attributes(value, "conjugate", "negative", "storage")
        case TypedStorage():
            yield from attributes(value, "storage", "dtype", "count", "offset")
        case ObjectValue():
            yield from attributes(value, "kind", "function", "arguments", "keywords")
            for name in ("states", "items", "pairs"):
                yield name, len(getattr(value, name))
                yield from ((f"{name}.{at}", one) for at, one in enumerate(getattr(value, name)))
        case Storage():
            yield from attributes(value, "location")
        case _:
            yield from attributes(value, *ATTRIBUTES[type(value)])


def attributes(value: object, *names: str) -> Iterator[tuple[str, object]]:
    for name in names:
        found = getattr(value, name)
        # what is made anew by each reading has no identity that counts
        yield name, repr(found) if name in {"shape", "stride"} else found


ATTRIBUTES: dict[type, tuple[str, ...]] = {
    Key: ("value",),
    EnumValue: ("cls", "value"),
    Partial: ("function", "arguments", "keywords", "attributes"),
    Rebuilt: ("type", "version", "arguments"),
    Reference: ("id",),
    ArrayPart: ("dtype", "shape", "data", "fortran", "core"),
    ParameterValue: ("data", "requires_grad", "state"),
    TensorSubclass: ("cls", "data", "state"),
    TorchTensor: ("kind", "dtype", "shape", "fields", "requires_grad"),
    WrapperSubclass: (
        *("cls", "dtype", "shape", "stride", "storage_offset", "layout", "device"),
        *("requires_grad", "state"),
    ),
}
