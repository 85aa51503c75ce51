"""`FloatxTensor`: floating point of 3 to 7 bits with a scale a block."""

from __future__ import annotations

import torch

from aoserial.kernels import dequantize_floatx
from aoserial.schema.builtin import FLOATX_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(FLOATX_TENSOR)
class FloatxTensor(VersionedTensor):
    """w = value of the code · scale.

    qdata: uint8 [..., N, K]: sign, exponent and mantissa in the low bits of each byte, as 00SEEEMM
        for 3 bits of exponent and 2 of mantissa. No code is an infinity or NaN.
    scale: floating point, ceil(shape / block_size).
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    exponent_bits: int
    mantissa_bits: int
    block_size: tuple[int, ...]

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return dequantize_floatx(
            self.qdata,
            self.scale,
            exponent_bits=self.exponent_bits,
            mantissa_bits=self.mantissa_bits,
            block_size=self.block_size,
            dtype=self.dtype if dtype is None else dtype,
        )
