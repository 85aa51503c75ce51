"""The dtypes of the safetensors format, their sizes, and their names in torch. Torch-free.

Throughout aoserial a dtype is the name of the torch dtype (`"bfloat16"`). The table is that of
safetensors 0.8.0. Two rows are special:

* `F4`: torch's `float4_e2m1fn_x2` holds two codes in an element of one byte, while the file's shape
  counts codes, so the last dimension in the file is twice that of the tensor.
* `F6_*`: torch has no such dtype. Such a part is listed and copied, and can be read as bytes
  through `part.view("uint8", (part.nbytes,))`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aoserial.errors import FormatError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Dtype:
    """One dtype: `code` in a safetensors header, `name` in torch, `bits` an element of the file."""

    code: str
    name: str
    bits: int
    in_torch: bool = True

    @property
    def itemsize(self) -> int:
        """Bytes of an element of the tensor (F6 counts as bytes)."""
        return max(1, self.bits // 8)


DTYPES: tuple[Dtype, ...] = (
    Dtype("BOOL", "bool", 8),
    Dtype("F4", "float4_e2m1fn_x2", 4),
    Dtype("F6_E2M3", "float6_e2m3fn", 6, in_torch=False),
    Dtype("F6_E3M2", "float6_e3m2fn", 6, in_torch=False),
    Dtype("U8", "uint8", 8),
    Dtype("I8", "int8", 8),
    Dtype("F8_E5M2", "float8_e5m2", 8),
    Dtype("F8_E4M3", "float8_e4m3fn", 8),
    Dtype("F8_E8M0", "float8_e8m0fnu", 8),
    Dtype("F8_E4M3FNUZ", "float8_e4m3fnuz", 8),
    Dtype("F8_E5M2FNUZ", "float8_e5m2fnuz", 8),
    Dtype("I16", "int16", 16),
    Dtype("U16", "uint16", 16),
    Dtype("F16", "float16", 16),
    Dtype("BF16", "bfloat16", 16),
    Dtype("I32", "int32", 32),
    Dtype("U32", "uint32", 32),
    Dtype("F32", "float32", 32),
    Dtype("C64", "complex64", 64),
    Dtype("F64", "float64", 64),
    Dtype("I64", "int64", 64),
    Dtype("U64", "uint64", 64),
)
BY_CODE = {dtype.code: dtype for dtype in DTYPES}
BY_NAME = {dtype.name: dtype for dtype in DTYPES}


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name; `name` must be in the table with `in_torch`."""
    import torch  # torch-free module: only callers that hold tensors come here

    return getattr(torch, BY_NAME[name].name)  # type: ignore[no-any-return]


def check_bool(raw: torch.Tensor) -> None:
    """Raises `FormatError` unless these bytes (uint8, flat, not empty) are bools.

    Any other byte makes a bool that is neither true nor false: torch's kernels disagree.
    """
    if raw.max() > 1:
        where = int((raw > 1).nonzero()[0])
        raise FormatError(
            f"a bool tensor has the byte {int(raw[where])} at element {where}, neither 0 nor 1"
        )


def dtype_name(dtype: torch.dtype) -> str:
    """`"bfloat16"` for `torch.bfloat16`."""
    return str(dtype).removeprefix("torch.")
