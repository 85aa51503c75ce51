"""`NF4Tensor`: 4-bit codes for the quantiles of a normal distribution, as QLoRA has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

import torch

from aoserial.errors import OptionError
from aoserial.kernels import NF4_ZERO, dequantize_nf4, quantize_nf4
from aoserial.schema.builtin import NF4_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(NF4_TENSOR)
class NF4Tensor(VersionedTensor):
    """w = nf4[code] · (scaler / factor + mean), computed in the dtype of the parts.

    All parts lie flat, elements in their order; so the tensor is cut along its first dimension,
    between blocks of scales.

    quantized_data: uint8 [n / 2], two codes a byte, the first in the high nibble.
    quantized_scalers: int8 [n / block_size], the codes of the scales.
    quantization_factor: [n / block_size / scaler_block_size].
    scaler_mean: one number. nf4: [16], what the codes stand for.
    """

    fill_of_zeros: ClassVar[Mapping[str, float]] = {
        "quantized_data": NF4_ZERO * 0x11,
        "quantization_factor": 1,
    }

    quantized_data: torch.Tensor
    quantized_scalers: torch.Tensor
    quantization_factor: torch.Tensor
    scaler_mean: torch.Tensor
    nf4: torch.Tensor
    block_size: int
    scaler_block_size: int

    @classmethod
    def from_float(
        cls, w: torch.Tensor, *, block_size: int = 64, scaler_block_size: int = 256
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one, and that of the scales.

        The bits are those of torchao 0.18 (`to_nf4`), but that blocks of zeros stay zeros.

        Args:
            w: floating point, finite, a multiple of `block_size * scaler_block_size` elements.
            block_size: elements that share a scale; even.
            scaler_block_size: scales that share a factor.

        Raises:
            QuantizationError: `w` holds an infinity or NaN, is no floating-point tensor, or has
                another number of elements.
            OptionError: a block size that is odd or not positive.
        """
        if block_size < 2 or block_size % 2 or scaler_block_size < 1:
            raise OptionError(
                f"block_size is {block_size} and scaler_block_size {scaler_block_size}, expected "
                f"an even number and a positive one"
            )
        parts = quantize_nf4(w.detach(), block_size=block_size, scaler_block_size=scaler_block_size)
        return cls(*parts, block_size, scaler_block_size, shape=w.shape, dtype=w.dtype)

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight, in the logical dtype unless another is given."""
        flat = dequantize_nf4(
            self.quantized_data,
            self.quantized_scalers,
            self.quantization_factor,
            self.scaler_mean,
            self.nf4,
            block_size=self.block_size,
            scaler_block_size=self.scaler_block_size,
        )
        return flat.to(self.dtype if dtype is None else dtype).reshape(self.shape)
