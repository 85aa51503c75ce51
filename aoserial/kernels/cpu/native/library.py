"""`products.c` as a library, where it was compiled when aoserial was installed.

It is no extension module: it knows nothing of Python, so the interpreter lets other threads run
while it works. The name of its file has the digest of its source, by which one that was built of
another source, with other parameters perhaps, is not found.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("products.c")
SWITCH = "AOSERIAL_NATIVE"  # 0 leaves the library alone
FORMATS = (  # in the order of products.c
    "int8",
    "int4",
    "float8_e5m2",
    "float8_e4m3fn",
    "float6_e3m2fn",
    "float6_e2m3fn",
    "float4_e2m1fn_x2",
)
MOST_ROWS = 16  # of an activation, at a time
LANES = 8


class WeightStruct(ctypes.Structure):
    """The `struct weight` of products.c."""

    _fields_ = (
        ("codes", ctypes.c_void_p),
        ("scale", ctypes.c_void_p),
        ("taken", ctypes.c_void_p),
        ("added", ctypes.c_void_p),
        ("rows", ctypes.c_int64),
        ("columns", ctypes.c_int64),
        ("group", ctypes.c_int64),
        ("block_rows", ctypes.c_int64),
        ("format", ctypes.c_int32),
        ("bits", ctypes.c_int32),
        ("unit", ctypes.c_float),
    )


class Library(NamedTuple):
    """The functions of products.c.

    Attributes:
        multiply: of a weight, the address of x, whether it is bfloat16, its rows, the addresses of
            room for `MOST_ROWS` of them and of y, and the number of threads.
        multiply_codes: of a weight, the address of x, its rows, that of y, the number of threads.
    """

    multiply: Callable[[WeightStruct, int, bool, int, int, int, int], None]
    multiply_codes: Callable[[WeightStruct, int, int, int, int], None]


def path() -> Path:
    """Where the library of this source is, or would be."""
    digest = hashlib.sha256(SOURCE.read_bytes()).hexdigest()
    return SOURCE.with_name(f"products-{digest[:16]}.so")


def load() -> Library | None:
    """None where it was not compiled, or is not to be used; with a warning where it cannot be."""
    if os.environ.get(SWITCH) == "0" or sys.byteorder != "little":
        return None
    if not SOURCE.exists() or not (built := path()).exists():
        return None
    try:
        found = ctypes.CDLL(str(built))
    except OSError as error:
        warnings.warn(f"{error}: small batches on CPUs run more slowly", stacklevel=2)
        return None
    multiply, multiply_codes = found.aoserial_multiply, found.aoserial_multiply_codes
    weight, address = ctypes.POINTER(WeightStruct), ctypes.c_void_p
    count, number = ctypes.c_int64, ctypes.c_int32
    multiply.argtypes = [weight, address, number, count, address, address, number]
    multiply_codes.argtypes = [weight, address, count, address, number]
    multiply.restype = multiply_codes.restype = None
    return Library(multiply, multiply_codes)


LIBRARY = load()
