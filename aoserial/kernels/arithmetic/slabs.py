"""Large weights computed a slab of rows at a time, so that what lies between stays in cache.

A formula of a dozen elementwise steps over 16 million elements reads and writes its 64 MiB of
intermediates a dozen times; over slabs it does not leave the cache. Blocks are independent of one
another, so the bits are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import torch

_SLAB = 1 << 21  # elements: 8 MiB in float32; small enough for cache, large enough to share out
_Function = TypeVar("_Function", bound=Callable[..., Any])


def by_slabs(function: _Function) -> _Function:
    """Runs a formula of blocks on slabs of the first dimension, and joins what it returns.

    The function takes a tensor whose rows are those of the weight, further tensors (or None) by
    position, each with a row a weight's row or a block's, or one for all, and `block_size` by
    keyword. It returns tensors whose first dimension goes with the weight's.
    """

    @functools.wraps(function)
    def run(
        first: torch.Tensor,
        *others: torch.Tensor | None,
        block_size: Sequence[int],
        **options: Any,
    ) -> Any:
        rows = _rows_of_a_slab(first, block_size)
        if rows is None:
            return function(first, *others, block_size=block_size, **options)
        height = first.shape[0]
        pieces = [
            function(
                first[start : start + rows],
                *(_cut(other, start, rows, height, block_size[0]) for other in others),
                block_size=block_size,
                **options,
            )
            for start in range(0, height, rows)
        ]
        return _join(pieces)

    return cast("_Function", run)


def _rows_of_a_slab(first: torch.Tensor, block_size: Sequence[int]) -> int | None:
    """How many rows make a slab; None where slabs make no sense."""
    if torch.compiler.is_compiling() or first.device.type != "cpu" or first.dim() < 2:
        return None
    if first.numel() <= _SLAB or block_size[0] >= first.shape[0]:
        return None
    rows = _SLAB * first.shape[0] // first.numel()
    return max(1, rows // block_size[0]) * block_size[0]


def _cut(
    other: torch.Tensor | None, start: int, rows: int, height: int, block: int
) -> torch.Tensor | None:
    """The rows of a further tensor that go with a slab."""
    if other is None or other.dim() == 0 or other.shape[0] == 1:
        return other
    if other.shape[0] == height:
        return other[start : start + rows]
    return other[start // block : -(-(start + rows) // block)]


def _join(pieces: list[Any]) -> Any:
    if isinstance(pieces[0], tuple):
        columns = zip(*pieces, strict=True)
        return tuple(None if column[0] is None else torch.cat(column) for column in columns)
    return torch.cat(pieces)
