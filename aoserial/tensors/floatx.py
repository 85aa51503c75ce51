"""`FloatxTensor`: floating point of 3 to 7 bits with a scale a block."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.kernels import dequantize_floatx, quantize_floatx
from aoserial.schema.builtin import FLOATX_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.granularity import BlockSize, block_size
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

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        exponent_bits: int = 3,
        mantissa_bits: int = 2,
        granularity: BlockSize = "row",
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one, and that of the scales.

        Args:
            w: [..., N, K], floating point, finite.
            exponent_bits, mantissa_bits: beside the sign; 7 bits in all at most.
            granularity: what shares a scale: `"tensor"`, `"row"`, or a block such as (1, 32).

        Raises:
            FieldError: another format.
            QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
        """
        blocks = block_size(granularity, w.shape)
        qdata, scale = quantize_floatx(
            w.detach(),
            exponent_bits=exponent_bits,
            mantissa_bits=mantissa_bits,
            block_size=blocks,
        )
        return cls(qdata, scale, exponent_bits, mantissa_bits, blocks, shape=w.shape, dtype=w.dtype)

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
