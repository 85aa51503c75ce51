"""The states of low-bit optimizers: `OptimState8bit`, `OptimState4bit`, `OptimStateFp8`.

Elements are counted in their order, whatever the shape, and each `block_size` of them share a
scale; so a state is cut along its first dimension, between blocks. Values are computed in float32.
`shown_dtype` is what torchao shows as the dtype of a state, where the values have another.
"""

from __future__ import annotations

import torch

from aoserial.kernels import look_up, look_up_pairs, scale_flat
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

    def _values(self) -> torch.Tensor:
        return self.codes.to(torch.float32)
