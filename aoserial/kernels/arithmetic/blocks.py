"""Blocks of elements that share a scale."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import QuantizationError


def expand(
    scale: torch.Tensor,
    block_size: Sequence[int],
    shape: Sequence[int],
    group_index: torch.Tensor | None = None,
) -> torch.Tensor:
    """Repeats each scale over its block, as far as broadcasting does not do that by itself.

    Args:
        scale: ceil(shape / block_size).
        shape: of the codes; the last block of a dimension may be cut short.
        group_index: [K], the block of each column, where columns of a block are no neighbours.

    Returns:
        A tensor that broadcasts to `shape`, each element with the scale of its block.
    """
    if group_index is not None:
        scale = scale.index_select(-1, group_index)
    for dim, (size, length) in enumerate(zip(block_size, shape, strict=True)):
        if scale.shape[dim] not in (1, length):
            # a broadcast copy; repeat_interleave goes through an index and is several times slower
            repeats = [-1] * (scale.dim() + 1)
            repeats[dim + 1] = size
            scale = scale.unsqueeze(dim + 1).expand(repeats).flatten(dim, dim + 1)
            scale = scale.narrow(dim, 0, length)
    return scale


def times(x: torch.Tensor, scale: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """`x` times the scale of each element's block.

    Where blocks divide the shape, both are viewed as blocks and broadcast, which is several times
    faster than repeating the scales and gives the same bits.

    Args:
        x: any shape.
        scale: ceil(shape / block_size).
    """
    lengths = list(zip(x.shape, block_size, strict=True))
    if any(length % size or size > length for length, size in lengths):
        return x * expand(scale, block_size, x.shape)
    blocks = [part for length, size in lengths for part in (length // size, size)]
    factors = [part for length, size in lengths for part in (length // size, 1)]
    return (x.reshape(blocks) * scale.reshape(factors)).reshape(x.shape)


def block_max(x: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """The largest element of each block, ceil(shape / block_size), in the dtype of `x`."""
    return _reduce(x, block_size, torch.amax, -torch.inf)


def block_min(x: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """The smallest element of each block, ceil(shape / block_size), in the dtype of `x`."""
    return _reduce(x, block_size, torch.amin, torch.inf)


def _reduce(
    x: torch.Tensor,
    block_size: Sequence[int],
    extreme: Callable[[torch.Tensor, int], torch.Tensor],
    never: float,
) -> torch.Tensor:
    for dim, size in enumerate(block_size):
        if size == 1:
            continue
        length = x.shape[dim]
        blocks = -(-length // size)
        missing = blocks * size - length  # what fills the last block up is `never` its extreme
        if missing:
            padding = [0, 0] * (x.dim() - 1 - dim) + [0, missing]
            x = F.pad(x, padding, value=never)
        blocked = x.reshape(*x.shape[:dim], blocks, size, *x.shape[dim + 1 :])
        x = extreme(blocked, dim + 1)
    return x


def largest_magnitude(w: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """max|w| of each block of a weight, in float32.

    Raises:
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
    """
    check_floating(w)
    return check_finite(block_max(w.abs(), block_size).to(torch.float32))


def check_floating(w: torch.Tensor) -> torch.Tensor:
    """`w` if it has a dtype to quantize from, else `QuantizationError`."""
    if not w.is_floating_point() or w.dtype.itemsize < 2:
        raise QuantizationError(f"a weight to quantize must be floating point, not {w.dtype}")
    return w


def check_finite(statistic: torch.Tensor) -> torch.Tensor:
    """A statistic of each block if all are finite, else `QuantizationError`.

    Largest and smallest elements hand an infinity or NaN on, so these are looked at instead of `w`.
    """
    if not torch.isfinite(statistic).all():
        raise QuantizationError("the weight holds an infinity or NaN, which no code stands for")
    return statistic
