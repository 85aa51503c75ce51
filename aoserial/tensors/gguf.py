"""`GGUFTensor`: blocks whose scales and offsets are codes themselves."""

from __future__ import annotations

import torch

from aoserial.kernels import dequantize_gguf
from aoserial.schema.builtin import GGUF_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(GGUF_TENSOR)
class GGUFTensor(VersionedTensor):
    """w = qdata · (super_scale · scale) + super_offset · offset, in the dtype of the parts.

    qdata: [..., N, K], codes 0 to 15 as their writer kept them, in uint8 or floating point.
    scale, offset: ceil(shape / block_size), codes 0 to 63 likewise.
    super_scale, super_offset: floating point [..., N, K / superblock_size].
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    offset: torch.Tensor
    super_scale: torch.Tensor
    super_offset: torch.Tensor
    block_size: tuple[int, ...]
    superblock_size: int

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return dequantize_gguf(
            self.qdata,
            self.scale,
            self.offset,
            self.super_scale,
            self.super_offset,
            block_size=self.block_size,
            superblock_size=self.superblock_size,
            dtype=self.dtype if dtype is None else dtype,
        )
