"""Blocks whose scales and offsets are codes themselves, as in GGUF's K-quants."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.kernels.arithmetic.blocks import expand
from aoserial.kernels.arithmetic.slabs import by_slabs


@by_slabs
def dequantize_gguf(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    offset: torch.Tensor,
    super_scale: torch.Tensor,
    super_offset: torch.Tensor,
    *,
    block_size: Sequence[int],
    superblock_size: int,
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = qdata · (super_scale · scale) + super_offset · offset, each step in the parts' dtype.

    Args:
        qdata: codes [..., N, K].
        scale, offset: codes, ceil(shape / block_size).
        super_scale, super_offset: floating point [..., N, K / superblock_size].
        superblock_size: columns that share one of these; whole blocks.

    Source: torchao 0.11 to 0.18, `_dequantize_gguf`.
    """
    blocks = [*(1 for _ in block_size[:-1]), max(1, superblock_size // block_size[-1])]
    scales = expand(super_scale, blocks, scale.shape) * scale
    offsets = expand(super_offset, blocks, offset.shape) * offset
    shape = qdata.shape
    return (qdata * expand(scales, block_size, shape) + expand(offsets, block_size, shape)).to(
        dtype
    )
