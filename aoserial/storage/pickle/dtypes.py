"""torch's names for dtypes, storages and constants, as pickles spell them. Torch-free.

Wider than the table of the safetensors format: pickles hold dtypes that have no code there.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from aoserial.storage.dtypes import DTYPES

if TYPE_CHECKING:
    import torch

# Bytes of an element. From the safetensors table, and what only pickles have (torch 2.13).
ITEMSIZES: dict[str, int] = {
    **{dtype.name: dtype.itemsize for dtype in DTYPES if dtype.in_torch},
    **{f"{sign}int{bits}": 1 for sign in ("", "u") for bits in range(1, 8)},
    **dict.fromkeys(("bits8", "bits1x8", "bits2x4", "bits4x2"), 1),
    **dict.fromkeys(("qint8", "quint8", "quint4x2", "quint2x4"), 1),
    "bits16": 2,
    "complex32": 4,
    "qint32": 4,
    "complex128": 16,
}

# Two numbers an element: swapping the bytes swaps those of each number.
COMPLEX = frozenset({"complex32", "complex64", "complex128"})


def number_bytes(name: str) -> int:
    """Bytes of one number of that dtype: what is reversed in the other byte order."""
    return ITEMSIZES[name] // 2 if name in COMPLEX else ITEMSIZES[name]


def swapped(data: bytes | memoryview, width: int) -> bytearray:
    """The bytes of numbers of `width` bytes in the other byte order."""
    turned = bytearray(len(data))
    for index in range(width):
        turned[index::width] = data[width - 1 - index :: width]
    return turned


# What torch can have as a lazy negative: imaginary parts of conjugates
NEGATIVE = frozenset({"float16", "float32", "float64"}) | COMPLEX

# How the codes of a torch quantized tensor are stored
QUANTIZED_CODES = {
    "qint8": "int8",
    "quint8": "uint8",
    "qint32": "int32",
    "quint4x2": "uint8",
    "quint2x4": "uint8",
}

# torch's older names for the same dtypes; both are globals of the module `torch`
_SYNONYMS = {
    "double": "float64",
    "float": "float32",
    "half": "float16",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "cdouble": "complex128",
    "cfloat": "complex64",
    "chalf": "complex32",
}
DTYPE_GLOBALS = {name: name for name in ITEMSIZES} | _SYNONYMS

# torch.storage._dtype_to_storage_type_map of torch 2.13; newer dtypes use UntypedStorage
STORAGE_DTYPES = {
    "DoubleStorage": "float64",
    "FloatStorage": "float32",
    "HalfStorage": "float16",
    "LongStorage": "int64",
    "IntStorage": "int32",
    "ShortStorage": "int16",
    "CharStorage": "int8",
    "ByteStorage": "uint8",
    "BoolStorage": "bool",
    "BFloat16Storage": "bfloat16",
    "ComplexDoubleStorage": "complex128",
    "ComplexFloatStorage": "complex64",
    "QInt8Storage": "qint8",
    "QInt32Storage": "qint32",
    "QUInt8Storage": "quint8",
    "QUInt4x2Storage": "quint4x2",
    "QUInt2x4Storage": "quint2x4",
}

LAYOUTS = frozenset(
    {"strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc", "jagged"}
    | {"_mkldnn"}
)

# NumPy's type strings without the byte order, and the dtype of torch that has the same bytes
NUMPY_DTYPES = {
    "b1": "bool",
    "i1": "int8",
    "i2": "int16",
    "i4": "int32",
    "i8": "int64",
    "u1": "uint8",
    "u2": "uint16",
    "u4": "uint32",
    "u8": "uint64",
    "f2": "float16",
    "f4": "float32",
    "f8": "float64",
    "c8": "complex64",
    "c16": "complex128",
}


def typed_storage(module: str, name: str) -> str | None:
    """The dtype of a storage class: `"uint8"` for the untyped one, None for what is no storage."""
    if module in {"torch", "torch.cuda"} and name in STORAGE_DTYPES:
        return STORAGE_DTYPES[name]
    return "uint8" if name == "UntypedStorage" and module in {"torch", "torch.storage"} else None


@cache
def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a name that is in `ITEMSIZES`; no other name reaches torch."""
    import torch  # torch-free module until here

    if name not in ITEMSIZES:
        raise KeyError(name)
    return getattr(torch, name)  # type: ignore[no-any-return]
