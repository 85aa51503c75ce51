"""Scales and zero points as the stream takes them: float32, one an output or one a block."""

from __future__ import annotations

import torch

from aoserial.kernels.arithmetic import expand
from aoserial.kernels.spec import Spec


def are_whole_blocks(spec: Spec) -> bool:
    """Whether no block is cut short, so that a weight can be viewed as its blocks.

    One without columns has none.
    """
    return spec.shape[-1] > 0 and all(
        size >= length or length % size == 0
        for size, length in zip(spec.block_size, spec.shape, strict=True)
    )


def same_along_k(spec: Spec) -> bool:
    """Whether a row has one scale, which may as well multiply the output."""
    return spec.block_size[-1] >= spec.shape[-1]


def exact(per_block: torch.Tensor, factor: float = 1.0) -> torch.Tensor | None:
    """Values times a power of two in float32; None where that rounds them or is beyond it."""
    wide = per_block.to(torch.float32) * factor
    same = wide.to(torch.float64) / factor == per_block.to(torch.float64)
    return wide.contiguous() if (same | per_block.isnan()).all() else None


def of_outputs(per_row: torch.Tensor, spec: Spec) -> torch.Tensor:
    """The scale of each output, [N], of scales that are the same along K."""
    rows = expand(per_row, spec.block_size, spec.shape).reshape(-1)
    return rows.expand(spec.shape[0]).contiguous()


def of_rows(per_block: torch.Tensor, spec: Spec, start: int, stop: int) -> torch.Tensor:
    """Those of the blocks of some rows, which are whole blocks."""
    if per_block.shape[0] == 1:
        return per_block
    size = spec.block_size[0]
    return per_block[start // size : -(-stop // size)]


def by_blocks(
    w: torch.Tensor, per_block: torch.Tensor, halves: int = 1
) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows of a weight [R, K] and what its blocks have [r, k], as views that broadcast.

    Args:
        halves: 2 where the even columns of all blocks come before the odd ones.
    """
    (rows, columns), (r, k) = w.shape, per_block.shape
    return w.view(r, rows // r, halves, k, columns // halves // k), per_block.view(r, 1, 1, k, 1)
