"""Marlin's 2:4 sparse int4 layout undone. Torch-free.

Of each four codes along K two are kept, and 16 bits tell which of 16 codes those are. Codes and
bits lie in the order in which the threads of an m16n8k16 product take them. Sources: torchao 0.5 to
0.15, `torchao/sparsity/marlin` (`get_perms_24`), and CUTLASS, `host_reorder.h`, `reorder_meta`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.storage import Part, compute, describe

if TYPE_CHECKING:
    import torch

_ZERO = 8  # the code of what was pruned
_TILE = 16  # compressed codes of a tile, along either dimension
_PERIOD = 1024  # codes after which the order of threads repeats: four tiles


def unpack_marlin(packed: Part, meta: Part, shape: tuple[int, int]) -> Part:
    """Codes 0 to 15, uint8 [N, K/2], even k in the low nibble; 8 where they were pruned.

    Args:
        packed: int32, eight of the N K / 2 kept codes each, the first in the lowest bits.
        meta: int16, of sixteen codes each.
        shape: [N, K], logical.

    Raises:
        FieldError: a shape that Marlin does not take, or other numbers of codes or bits.

    Proved by torchao-0.13.0/int4wo_fmt_marlin_sparse.
    """
    rows, columns = shape
    if rows % 64 or columns % 32:
        raise FieldError(f"{list(shape)} is no shape of Marlin's: expected multiples of 64 and 32")
    for name, part, dtype, count in (
        ("qdata", packed, "int32", rows * columns // 16),
        ("meta", meta, "int16", rows * columns // 16),
    ):
        if part.dtype != dtype or math.prod(part.shape) != count:
            raise FieldError(f"is {describe(part)}, expected {count} {dtype}").locate(field=name)

    def unpack(codes: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        return _dense(_compressed(codes, rows, columns // 2), _places(kept, rows, columns))

    return compute(unpack, packed, meta, dtype="uint8", shape=(rows, columns // 2))


def marlin_scales(scale: Part, shape: tuple[int, int], group_size: int) -> Part:
    """Scales [N, G] of Marlin's [G, N], whose columns are in another order where G is above 1.

    Raises:
        FieldError: there are other numbers of them.
    """
    rows, columns = shape
    groups = 1 if group_size in (-1, columns) else -(-columns // group_size)
    if math.prod(scale.shape) != rows * groups or rows % 64:
        raise FieldError(f"{describe(scale)} are not {groups} a row of {rows}").locate(
            field="scale"
        )

    def order(given: torch.Tensor) -> torch.Tensor:
        if groups == 1:
            return given.reshape(rows, 1)
        # of 8 scales, 0 to 3 lie in the even places and 4 to 7 in the odd
        eights = given.reshape(groups, rows // 8, 4, 2).transpose(2, 3)
        return eights.reshape(groups, rows).t().contiguous()

    return compute(order, scale, dtype=scale.dtype, shape=(rows, groups))


def _compressed(packed: torch.Tensor, rows: int, kept: int) -> torch.Tensor:
    """The kept codes [N, K/2], a byte each."""
    import torch  # torch-free module

    data = packed.contiguous().view(torch.uint8)
    codes = torch.stack((data & 15, data >> 4), dim=-1).reshape(-1, _PERIOD)
    order = _thread_order().to(data.device)
    tiled = torch.empty_like(codes)
    tiled[:, order] = codes
    tiles = tiled.reshape(kept // _TILE, rows // _TILE, _TILE, _TILE)  # [., ., k, n]
    return tiles.permute(1, 3, 0, 2).reshape(rows, kept)


def _thread_order() -> torch.Tensor:
    """Which code of four tiles, 16 x 16 each, lies at each of their 1024 places.

    Thread t holds, four times over, eight codes: of two groups of four columns, and of rows 2 r,
    2 r + 1, 2 r + 8 and 2 r + 9, where r = t mod 4.
    """
    import torch  # torch-free module

    thread = torch.arange(32).reshape(32, 1, 1)
    column = torch.arange(4).reshape(1, 4, 1)
    eight = torch.tensor([0, 2, 4, 6, 1, 3, 5, 7])
    row = 2 * (thread % 4) + torch.tensor([0, 1, 8, 9])[eight % 4]
    tile, half = thread // 8, thread // 4 % 2
    return (256 * tile + 16 * row + 8 * half + 4 * (eight // 4) + column).reshape(-1)


def _places(meta: torch.Tensor, rows: int, columns: int) -> torch.Tensor:
    """Where in their row the kept codes belong, int64 [N, K/2]."""
    import torch  # torch-free module

    words = columns // 16
    row = torch.arange(rows).reshape(-1, 1)
    word = torch.arange(words).reshape(1, -1)
    stored = row // 64 * 64 + row % 2 * 2 + row % 8 // 4 + row % 4 // 2 * 32 + row % 64 // 8 * 4
    # of each 2 x 2 words, those off the diagonal change places
    moved = (word % 2) - (stored % 2)
    stored, word = stored + moved, word - moved
    at = (word // 2 * rows + stored) * 2 + word % 2
    bits = meta.reshape(-1)[at.to(meta.device)].to(torch.int64).reshape(rows, words, 1)
    shifts = torch.arange(0, 16, 2, device=meta.device)
    four = torch.arange(8, device=meta.device) // 2 * 4  # where the four begin that each is of
    start = torch.arange(words, device=meta.device).reshape(-1, 1) * 16
    return ((bits >> shifts & 3) + four + start).reshape(rows, columns // 2)


def _dense(kept: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
    rows, half = kept.shape
    codes = kept.new_full((rows, 2 * half), _ZERO)
    codes.scatter_(1, places, kept)
    return codes[:, ::2] | codes[:, 1::2] << 4
