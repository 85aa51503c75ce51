"""The words for which elements of a weight share a scale, as block sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias

from aoserial.errors import QuantizationError

BlockSize: TypeAlias = Literal["tensor", "row"] | tuple[int, ...] | list[int]


def block_size(granularity: BlockSize, shape: Sequence[int]) -> tuple[int, ...]:
    """The block size of a weight of that shape.

    Args:
        granularity: `"tensor"`: one scale for all; `"row"`: one for each run along the last
            dimension; a block: one for each such block of the last dimensions, and nothing shared
            along those in front.

    Raises:
        QuantizationError: a block that does not fit the rank, or another word.
    """
    lengths = [max(1, length) for length in shape]
    if len(lengths) < 2:
        raise QuantizationError(f"a weight has two dimensions or more, not {len(lengths)}")
    if granularity == "tensor":
        return tuple(lengths)
    if granularity == "row":
        return (*[1] * (len(lengths) - 1), lengths[-1])
    sizes = tuple(granularity) if isinstance(granularity, tuple | list) else ()
    if not 0 < len(sizes) <= len(lengths) or any(size < 1 for size in sizes):
        raise QuantizationError(
            f"granularity is {granularity!r}, expected 'tensor', 'row' or a block of positive "
            f"lengths for the last dimensions of {list(shape)}"
        )
    blocks = (*[1] * (len(lengths) - len(sizes)), *sizes)
    return tuple(min(size, length) for size, length in zip(blocks, lengths, strict=True))
