"""Compressed rows of square blocks (BSR)."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.errors import FieldError, QuantizationError


def densify(
    row_starts: torch.Tensor,
    block_columns: torch.Tensor,
    block_values: torch.Tensor,
    *,
    shape: Sequence[int],
) -> torch.Tensor:
    """The matrix [N, K] in the dtype of its blocks, zero where it has none.

    Args:
        row_starts: integers [N/B + 1]: where each row of blocks begins among the blocks.
        block_columns: integers [blocks], the column of each, counted in blocks.
        block_values: [blocks, B, B].

    Raises:
        FieldError: indices that do not lay the blocks out in that shape.
    """
    count, side = block_values.shape[:2]
    rows, columns = shape
    if side == 0 or rows % side or columns % side or row_starts.shape != (rows // side + 1,):
        raise FieldError(
            f"{list(row_starts.shape)} starts of rows and blocks of {side} do not give a matrix "
            f"of shape {list(shape)}"
        )
    if not torch.compiler.is_compiling():
        _check(row_starts, block_columns, count, columns // side)
    number = torch.arange(count, device=block_values.device, dtype=row_starts.dtype)
    of_row = torch.searchsorted(row_starts, number, right=True) - 1
    grid = block_values.new_zeros(rows // side, columns // side, side, side)
    grid[of_row, block_columns.to(torch.int64)] = block_values
    return grid.transpose(1, 2).reshape(rows, columns)


def sparsify(w: torch.Tensor, side: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The blocks of a matrix that are not all zero, as `densify` takes them.

    Args:
        w: [N, K].
        side: of the blocks, B; N and K are multiples of it.

    Returns:
        row_starts: int64 [N/B + 1]. block_columns: int64 [blocks]. block_values: [blocks, B, B].

    Raises:
        QuantizationError: blocks that do not fill the matrix.
    """
    if w.dim() != 2 or side < 1 or any(length % side for length in w.shape):
        raise QuantizationError(f"blocks of {side} do not fill a weight of shape {list(w.shape)}")
    rows, columns = (length // side for length in w.shape)
    grid = w.reshape(rows, side, columns, side).transpose(1, 2)
    kept = (grid != 0).flatten(2).any(-1)
    ends = kept.sum(1).cumsum(0)
    return torch.cat([ends.new_zeros(1), ends]), kept.nonzero()[:, 1], grid[kept]


def _check(row_starts: torch.Tensor, block_columns: torch.Tensor, count: int, columns: int) -> None:
    if row_starts.device.type == "meta":
        return
    ends = (int(row_starts[0]), int(row_starts[-1]))
    if ends != (0, count) or bool((row_starts.diff() < 0).any()):
        raise FieldError(f"row_starts do not rise from 0 to {count}, the number of blocks")
    if bool(((block_columns < 0) | (block_columns >= columns)).any()):
        raise FieldError(f"block_columns has columns that are not among the {columns}")
