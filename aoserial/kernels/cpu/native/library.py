"""`products.c` as a library, where it was compiled when aoserial was installed.

It is no extension module: it knows nothing of Python, so the interpreter lets other threads run
while it works. The name of its file has the digest of its source, by which one that was built of
another source, with other parameters perhaps, is not found.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import struct
import sys
import warnings
from collections.abc import Callable
from enum import IntEnum
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("c") / "products.c"
SWITCH = "AOSERIAL_NATIVE"  # 0 leaves the library alone
FORMATS = (  # in the order of `enum format` of weight.h
    "int8",
    "int4",
    "float8_e5m2",
    "float8_e4m3fn",
    "float6_e3m2fn",
    "float6_e2m3fn",
    "float4_e2m1fn_x2",
)
LANES = 8
_WEIGHT = struct.Struct("@4P4q2ifi")  # the `struct weight` of weight.h
# What follows it in the `struct layer` of threads.h: addresses of x, of its rows' scales and zero
# points, of the bias and of y; the rows of x; whether x, the bias and y are bfloat16; the number of
# threads; and the tiles, of `Tiles`.
CALL = struct.Struct("@5Pq5i0q")
# The `struct quantizing` of quantizing.h: addresses of x, of its rows' scales and zero points, and
# of the codes; rows and columns, and 0; the lowest and the highest code, whether x is bfloat16, the
# number of threads; one of `MAPPINGS`, and the least scale.
QUANTIZING = struct.Struct("@4P3q5if0q")
MAPPINGS = ("given", "symmetric", "symmetric_no_clipping_err", "asymmetric")  # `enum mapping`


class Tiles(IntEnum):
    """What multiplies tiles of bfloat16: `enum tiles_by` of threads.h."""

    NONE = 0
    VECTORS = 1
    AMX = 2


class WeightFields(NamedTuple):
    """The fields of `struct weight`; an address that there is none of is 0."""

    codes: int
    scale: int
    taken: int
    added: int
    rows: int
    columns: int
    group: int
    block_rows: int
    format: int
    bits: int
    unit: float
    in_integers: int

    def packed(self) -> bytes:
        return _WEIGHT.pack(*self)


class Library:
    """The functions of products.c, of a `struct layer` or a `struct quantizing`.

    Attributes:
        tiles: what the processor has. Linux is asked for AMX when this is, and then refuses signal
            stacks that are too small for its registers: so not before there is a weight.

    Raises:
        OSError: it is no such library.
    """

    def __init__(self, built: Path) -> None:
        found = ctypes.CDLL(str(built))
        sizes = (found.aoserial_layer_bytes(), found.aoserial_quantizing_bytes())
        if sizes != (_WEIGHT.size + CALL.size, QUANTIZING.size):
            raise OSError(f"{built.name} was compiled for another layout of its parameters")
        self.multiply: Callable[[bytes], int] = found.aoserial_multiply
        self.multiply_codes: Callable[[bytes], int] = found.aoserial_multiply_codes
        self.quantize: Callable[[bytes], None] = found.aoserial_quantize
        found.aoserial_multiply.argtypes = [ctypes.c_char_p]
        found.aoserial_multiply_codes.argtypes = [ctypes.c_char_p]
        found.aoserial_quantize.argtypes = [ctypes.c_char_p]
        found.aoserial_quantize.restype = None
        self._tiles: Callable[[], int] = found.aoserial_tiles

    @cached_property
    def tiles(self) -> Tiles:
        return Tiles(self._tiles())


def path() -> Path:
    """Where the library of this source is, or would be."""
    digest = hashlib.sha256()
    for file in sorted((*SOURCE.parent.glob("*.h"), SOURCE)):
        digest.update(file.read_bytes())
    return SOURCE.with_name(f"products-{digest.hexdigest()[:16]}.so")


def load() -> Library | None:
    """None where it was not compiled, or is not to be used; with a warning where it cannot be."""
    if os.environ.get(SWITCH) == "0" or sys.byteorder != "little":
        return None
    if not SOURCE.exists() or not (built := path()).exists():
        return None
    try:
        return Library(built)
    except OSError as error:
        warnings.warn(f"{error}: small batches on CPUs run more slowly", stacklevel=2)
        return None


LIBRARY = load()
