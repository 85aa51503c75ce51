"""The states of low-bit optimizers: `OptimState8bit`, `OptimState4bit`, `OptimStateFp8`.

Elements are counted in their order, whatever the shape, and each `block_size` of them share a
scale; so a state is cut along its first dimension, between blocks. Values are computed in float32.
`shown_dtype` is what torchao shows as the dtype of a state, where the values have another.
"""

from __future__ import annotations

from typing import Self

import torch

from aoserial.errors import OptionError
from aoserial.kernels import (
    dynamic_map,
    look_up,
    look_up_pairs,
    quantize_by_table,
    quantize_flat_fp8,
    scale_flat,
)
from aoserial.schema.builtin import OPTIM_STATE_4BIT, OPTIM_STATE_8BIT, OPTIM_STATE_FP8
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


class _OptimizerState(VersionedTensor):
    """What the three share: blocks of values, each with its scale."""

    scale: torch.Tensor
    block_size: int
    shown_dtype: torch.dtype | None = None

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain state, in the logical dtype unless another is given."""
        flat = scale_flat(self._values(), self.scale, self.block_size)
        return flat.to(self.dtype if dtype is None else dtype).reshape(self.shape)

    def _values(self) -> torch.Tensor:
        """What the codes stand for before they are scaled, float32."""
        raise NotImplementedError


@bind(OPTIM_STATE_8BIT)
class OptimState8bit(_OptimizerState):
    """qmap[code] · scale.

    codes: uint8, the shape of the state.
    scale: float32 [n / block_size].
    qmap: float32 [256], ascending; with negative values if `signed`.

    Source: torchao 0.4 to 0.18, whose bits `dequantize` has; arXiv 2110.02861.
    """

    codes: torch.Tensor
    qmap: torch.Tensor
    signed: bool

    @classmethod
    def from_float(cls, x: torch.Tensor, *, signed: bool = True, block_size: int = 256) -> Self:
        """Quantizes a state; of a float32 one, the bits are torchao 0.18's.

        Args:
            x: floating point, finite, a multiple of `block_size` elements.
            signed: whether values may be negative; else those become the code of zero.

        Raises:
            QuantizationError: `x` is not so.
            OptionError: a block size that is not positive.
        """
        qmap = dynamic_map(8, signed=signed).to(x.device)
        codes, scale = quantize_by_table(x.detach(), qmap, block_size=_checked(block_size))
        return cls(codes.view(x.shape), scale, qmap, signed, block_size, dtype=torch.float32)

    def _values(self) -> torch.Tensor:
        return look_up(self.codes, self.qmap)


@bind(OPTIM_STATE_4BIT)
class OptimState4bit(_OptimizerState):
    """qmap[code] · scale.

    codes: uint8 [n / 2], flat, two a byte, the first in the high nibble.
    scale: float32 [n / block_size].
    qmap: float32 [16], ascending; with negative values if `signed`.

    Source: torchao 0.4 to 0.18, whose bits `dequantize` has; arXiv 2309.01507.
    """

    codes: torch.Tensor
    qmap: torch.Tensor
    signed: bool

    @classmethod
    def from_float(cls, x: torch.Tensor, *, signed: bool = True, block_size: int = 128) -> Self:
        """Quantizes a state; of a float32 one, the bits are torchao 0.18's.

        Args:
            x: floating point, finite, a multiple of `block_size` elements.
            signed: whether values may be negative; else those become the lowest code.
            block_size: even.

        Raises:
            QuantizationError: `x` is not so.
            OptionError: a block size that is odd or not positive.
        """
        qmap = dynamic_map(4, signed=signed).to(x.device)
        codes, scale = quantize_by_table(
            x.detach(), qmap, block_size=_checked(block_size, even=True)
        )
        packed = codes[::2] << 4 | codes[1::2]
        return cls(packed, scale, qmap, signed, block_size, shape=x.shape, dtype=torch.float32)

    def _values(self) -> torch.Tensor:
        return look_up_pairs(self.codes, self.qmap)


@bind(OPTIM_STATE_FP8)
class OptimStateFp8(_OptimizerState):
    """code · scale.

    codes: float8_e4m3fn, the shape of the state.
    scale: float32 [n / block_size].

    Source: torchao 0.4 to 0.18, whose bits `dequantize` has.
    """

    codes: torch.Tensor

    @classmethod
    def from_float(cls, x: torch.Tensor, *, block_size: int = 256) -> Self:
        """Quantizes a state; of a float32 one, the bits are torchao 0.18's.

        Args:
            x: floating point, finite, a multiple of `block_size` elements.

        Raises:
            QuantizationError: `x` is not so.
            OptionError: a block size that is not positive.
        """
        codes, scale = quantize_flat_fp8(x.detach(), block_size=_checked(block_size))
        return cls(codes.view(x.shape), scale, block_size, dtype=torch.float32)

    def _values(self) -> torch.Tensor:
        return self.codes.to(torch.float32)


def _checked(block_size: int, *, even: bool = False) -> int:
    if block_size < 1 or (even and block_size % 2):
        wanted = "an even number" if even else "a positive number"
        raise OptionError(f"block_size is {block_size}, expected {wanted}")
    return block_size
