"""Calls of Python, NumPy and torch that stand for plain values. Torch-free.

A table by the exact name of the function. Each entry takes the values of the arguments and gives
the value, or None when they are not what that function is pickled with.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import TypeAlias

from aoserial.storage.pickle.builder import keys
from aoserial.storage.pickle.context import Context
from aoserial.storage.pickle.dtypes import (
    DTYPE_GLOBALS,
    ITEMSIZES,
    LAYOUTS,
    NUMPY_DTYPES,
    number_bytes,
    swapped,
)
from aoserial.storage.pickle.tensors import MAX_INT, ArrayPart
from aoserial.storage.pickle.values import (
    Name,
    Partial,
    StateDict,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    Value,
)

Arguments: TypeAlias = tuple[Value, ...]

_DTYPES = {name: TorchDtype(dtype) for name, dtype in DTYPE_GLOBALS.items()}
_LAYOUT_VALUES = {f"torch.{name}": TorchLayout(name) for name in LAYOUTS}
_CPU = TorchDevice("cpu")


def constant(name: Name) -> Value | None:
    """The value of a global that is itself a plain value."""
    if name.module == "torch":
        return _DTYPES.get(name.name) or _LAYOUT_VALUES.get(name.path)
    return None


# -- Python -------------------------------------------------------------------------------------


def _encode(_: Context, arguments: Arguments) -> bytes | None:
    """`_codecs.encode(text, "latin1")`: bytes, before protocol 3."""
    match arguments:
        case (str() as text, "latin1" | "latin-1"):
            return _latin1(text)
    return None


def _latin1(text: str) -> bytes | None:
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return None


def _bytes(_: Context, arguments: Arguments) -> bytes | None:
    match arguments:
        case ():
            return b""
        case (bytes() as data,):
            return data
    return None


def _bytearray(_: Context, arguments: Arguments) -> bytearray | None:
    match arguments:
        case ():
            return bytearray()
        case (bytes() as data,):
            return bytearray(data)
        case (str() as text, "latin-1" | "latin1"):
            encoded = _latin1(text)
            return None if encoded is None else bytearray(encoded)
    return None


def _complex(_: Context, arguments: Arguments) -> complex | None:
    match arguments:
        case (float() as real, float() as imaginary):
            return complex(real, imaginary)
    return None


def _attribute(_: Context, arguments: Arguments) -> Name | None:
    """`getattr(cls, "name")`, as protocols before 4 spell a name inside a class."""
    match arguments:
        case (Name(module, outer), str() as inner) if inner.isidentifier():
            return Name(module, f"{outer}.{inner}")
    return None


def _partial(arguments: Arguments, state: Value) -> Partial | None:
    match arguments, state:
        case (
            (function,),
            (same, tuple() as given, dict() as keywords, None | dict() as attributes),
        ) if same is function:
            return Partial(function, given, keywords, attributes)
    return None


# -- torch --------------------------------------------------------------------------------------


def _ordered_dict(_: Context, arguments: Arguments) -> StateDict | None:
    """An OrderedDict: empty, or (Python 2) made from a list of lists of key and value."""
    found = StateDict()
    match arguments:
        case ():
            return found
        case (list() as pairs,) if all(type(pair) in _LISTS and len(pair) == 2 for pair in pairs):
            firsts, seconds = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            found.update(zip(keys(firsts), seconds, strict=True))
            return found
    return None


def _set(_: Context, arguments: Arguments) -> set[Value] | None:
    """`set([…])`: before protocol 4, which has an opcode for it."""
    match arguments:
        case (list() as items,):
            return set(keys(items))
    return None


def _frozen_set(_: Context, arguments: Arguments) -> frozenset[Value] | None:
    match arguments:
        case (list() as items,):
            return frozenset(keys(items))
    return None


_LISTS = frozenset({list, tuple})


def _size(_: Context, arguments: Arguments) -> TorchSize | None:
    match arguments:
        case (tuple() as dimensions,) if all(type(size) is int for size in dimensions):
            return TorchSize(dimensions)
    return None


def _device(_: Context, arguments: Arguments) -> TorchDevice | None:
    match arguments:
        case ("cpu",):
            return _CPU
        case (str() as kind,):
            kind, colon, index = kind.partition(":")
            if not colon:
                return TorchDevice(kind)
            return TorchDevice(kind, int(index)) if index.isdecimal() and len(index) < 4 else None
        case (str() as kind, int() as index):
            return TorchDevice(kind, index)
    return None


def _layout(_: Context, arguments: Arguments) -> TorchLayout | None:
    match arguments:
        case (str() as name,):
            return _LAYOUT_VALUES.get(name)
    return None


# -- NumPy --------------------------------------------------------------------------------------


class NumpyDtype(str):
    """A NumPy dtype that torch has, by its type string with the byte order: `"<f4"`."""

    __slots__ = ()


def _numpy_dtype(arguments: Arguments, state: Value) -> NumpyDtype | None:
    """`dtype("f4", False, True)` and its state (version, order, 6 × nothing of ours)."""
    match arguments, state:
        case (str() as kind, _, _), (int(), "<" | ">" | "|" as order, None, None, None, *_):
            return NumpyDtype(order + kind) if kind in NUMPY_DTYPES else None
    return None


def _scalar(_: Context, arguments: Arguments) -> Value | None:
    """A NumPy number as a Python number, which holds it exactly."""
    match arguments:
        case (NumpyDtype() as dtype, bytes() | str() as data):
            raw = _raw(data)
            form = _SCALARS.get(dtype[1:])
            if form is None or struct.calcsize(form) != len(raw):
                return None
            numbers = struct.unpack((">" if dtype[0] == ">" else "<") + form, raw)
            return complex(*numbers) if len(numbers) == 2 else numbers[0]
    return None


_SCALARS = {
    "b1": "?",
    "i1": "b",
    "i2": "h",
    "i4": "i",
    "i8": "q",
    "u1": "B",
    "u2": "H",
    "u4": "I",
    "u8": "Q",
    "f2": "e",
    "f4": "f",
    "f8": "d",
    "c8": "ff",
    "c16": "dd",
}


def _array(arguments: Arguments, state: Value) -> ArrayPart | None:
    """`_reconstruct(ndarray, (0,), b"b")` and its state: version, shape, dtype, order, bytes."""
    match arguments, state:
        case (Name("numpy", "ndarray"), (0,), _), (
            (1, tuple() as shape, NumpyDtype() as dtype, fortran, bytes() | str() as data)
        ):
            return _made_array(shape, dtype, "F" if fortran is True else "C", _raw(data))
    return None


def _from_buffer(_: Context, arguments: Arguments) -> ArrayPart | None:
    """`_frombuffer(bytes, dtype, shape, order)` of protocol 5."""
    match arguments:
        case (bytes() | bytearray() as data, NumpyDtype() as dtype, tuple() as shape, str() as o):
            return _made_array(shape, dtype, o, bytes(data)) if o in {"C", "F"} else None
    return None


def _raw(data: bytes | str) -> bytes:
    """Bytes as they were: a str of Python 2 that happened to be UTF-8 was taken for text."""
    return data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")


def _made_array(shape: tuple[Value, ...], dtype: str, order: str, data: bytes) -> ArrayPart | None:
    name = NUMPY_DTYPES[dtype[1:]]
    itemsize = ITEMSIZES[name]
    if not all(type(size) is int and 0 <= size <= MAX_INT for size in shape) or len(shape) > 64:
        return None
    if math.prod(shape) * itemsize != len(data):
        return None
    if dtype[0] == ">" and itemsize > 1:
        data = bytes(swapped(data, number_bytes(name)))
    return ArrayPart(name, shape, data, fortran=order == "F")


# -- the tables ---------------------------------------------------------------------------------

# By module and name: of calls without a state …
PLAIN: dict[tuple[str, str], Callable[[Context, Arguments], Value | None]] = {
    ("collections", "OrderedDict"): _ordered_dict,
    ("_codecs", "encode"): _encode,
    ("builtins", "set"): _set,
    ("builtins", "frozenset"): _frozen_set,
    ("builtins", "bytes"): _bytes,
    ("builtins", "bytearray"): _bytearray,
    ("builtins", "complex"): _complex,
    ("builtins", "getattr"): _attribute,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    ("torch.serialization", "_get_layout"): _layout,
    # NumPy 2 moved `core` to `_core`
    **{(f"numpy.{core}.multiarray", "scalar"): _scalar for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _from_buffer for core in ("core", "_core")},
}

# … and of those with one.
STATEFUL: dict[tuple[str, str], Callable[[Arguments, Value], Value | None]] = {
    ("functools", "partial"): _partial,
    ("numpy", "dtype"): _numpy_dtype,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _array for core in ("core", "_core")},
}
