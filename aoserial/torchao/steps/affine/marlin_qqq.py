"""Marlin's layout of QQQ (arXiv 2406.09904) undone: int4 weights for int8 activations. Torch-free.

Codes lie in the order in which the threads of an int8 product take them; scales are of channels,
and perhaps of groups of 128 as well. Source: torchao 0.7 to 0.15, `quantization/marlin_qqq`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.storage import Part, compute, describe
from aoserial.torchao.affine.schemas import MARLIN_QQQ_GROUPED_TENSOR, MARLIN_QQQ_TENSOR
from aoserial.torchao.steps.affine.view import Affine, zero_domain

if TYPE_CHECKING:
    import torch

_TILE = 16
_PERIOD = 1024  # codes after which the order of threads repeats: four tiles
# which of a thread's eight codes each nibble of its word holds, from the lowest
_OF_CHANNELS = (4, 0, 5, 1, 6, 2, 7, 3)
_OF_GROUPS = (0, 2, 4, 6, 1, 3, 5, 7)


@migration(
    MARLIN_QQQ_TENSOR.type,
    1,
    1,
    becomes="aoserial.Int4Tensor",
    repairs="sign of codes: torchao's own dequantize takes these for unsigned ones",
)
def unpack_channels(record: Record) -> Record:
    """MarlinQQQTensor of torchao 0.7 to 0.15 without groups: signed codes, 16 times the scale.

    Marlin's codes are the upper halves of int8, so their scale is a 16th of that of int4, which is
    exact. Which block size is written, nothing looks at.
    Proved by fixtures/torchao-0.7.0/int8da_int4w_marlinqqq (the releases' own dequantize forgets
    the sign of the codes; the values there are corrected).
    """
    tensor = Affine(record)
    rows, columns = _checked(tensor)
    whole = Affine(record.set(block_size=(1, columns)))
    scale = _in_order(tensor.parts["s_channel"], "s_channel", (rows, 1))
    parts = {
        "qdata": _unpacked(tensor, _OF_CHANNELS, signed=True),
        "scale": compute(_sixteen_times, scale, dtype="float32", shape=(rows, 1)),
    }
    return whole.become("Int4Tensor", parts, zero_domain=zero_domain("none"))


@migration(
    MARLIN_QQQ_GROUPED_TENSOR.type,
    1,
    1,
    becomes="aoserial.Int4Tensor",
    lossy="the scales of channels and of groups become their products in half precision",
)
def unpack_groups(record: Record) -> Record:
    """MarlinQQQTensor of torchao 0.7 to 0.15 with groups: one scale is left, a product of two.

    Rounded as torchao's `_dequantize_affine_qqq` rounds it, so the weight's values are the same;
    its kernel multiplies by one scale after the other.
    Proved by fixtures/torchao-0.12.0/int8da_int4w_marlinqqq_g128.
    """
    tensor = Affine(record)
    rows, columns = _checked(tensor)
    groups = columns // tensor.group_size
    scale = compute(
        _product,
        _in_order(tensor.parts["s_group"], "s_group", (rows, groups)),
        _in_order(tensor.parts["s_channel"], "s_channel", (rows, 1)),
        dtype="float16",
        shape=(rows, groups),
    )
    parts = {"qdata": _unpacked(tensor, _OF_GROUPS, signed=False), "scale": scale}
    return tensor.become("Int4Tensor", parts, zero_domain=zero_domain("none"))


def _checked(tensor: Affine) -> tuple[int, int]:
    rows, columns = tensor.matrix
    given = tensor.impl.fields
    if (given.get("num_bits"), given.get("original_shape")) != (4, (columns, rows)):
        raise FieldError(f"is not of 4 bits and {[columns, rows]}").locate(field="tensor_impl")
    if rows % 64 or columns % 16:
        raise FieldError(f"is {[rows, columns]}, expected multiples of 64 and 16").locate(
            field="shape"
        )
    return rows, columns


def _unpacked(tensor: Affine, order: tuple[int, ...], *, signed: bool) -> Part:
    """Codes 0 to 15, uint8 [N, K/2], even k in the low nibble."""
    rows, columns = tensor.matrix
    packed = tensor.parts["int_data"]
    if packed.dtype != "int32" or math.prod(packed.shape) * 8 != rows * columns:
        raise FieldError(f"{describe(packed)} is not {rows} x {columns} codes").locate(
            field="tensor_impl.int_data"
        )

    def unpack(words: torch.Tensor) -> torch.Tensor:
        codes = _codes(words, rows, columns, order)
        codes = codes ^ 8 if signed else codes
        return codes[:, ::2] | codes[:, 1::2] << 4

    return compute(unpack, packed, dtype="uint8", shape=(rows, columns // 2))


def _codes(words: torch.Tensor, rows: int, columns: int, order: tuple[int, ...]) -> torch.Tensor:
    """The nibbles as they are, one a byte, [N, K].

    Thread t holds, of each of four tiles of 16 x 16, eight codes of columns k = 4 (t mod 4) to
    4 (t mod 4) + 3: four of the row n = t div 4, and four of the row 8 below.
    """
    import torch  # torch-free module

    thread = torch.arange(32).reshape(32, 1, 1)
    tile = torch.arange(4).reshape(1, 4, 1)
    eight = torch.tensor(order)
    column = 4 * (thread % 4) + eight % 4
    place = (256 * tile + 16 * column + thread // 4 + 8 * (eight // 4)).reshape(-1)
    data = words.contiguous().view(torch.uint8)
    stored = torch.stack((data & 15, data >> 4), dim=-1).reshape(-1, _PERIOD)
    tiled = torch.empty_like(stored)
    tiled[:, place.to(data.device)] = stored
    tiles = tiled.reshape(columns // _TILE, rows // _TILE, _TILE, _TILE)  # [., ., k, n]
    return tiles.permute(1, 3, 0, 2).reshape(rows, columns)


def _in_order(scale: Part, name: str, shape: tuple[int, int]) -> Part:
    """Scales [N, G] of those as threads take them: of channels by 32, of groups by 64."""
    rows, groups = shape
    if math.prod(scale.shape) != rows * groups:
        raise FieldError(f"is {describe(scale)}, expected {groups} for each of {rows} rows").locate(
            field=f"tensor_impl.{name}"
        )

    def order(given: torch.Tensor) -> torch.Tensor:
        if name == "s_group":
            eights = given.reshape(groups, rows // 64, 8, 8).transpose(2, 3)
        else:  # of 32, four pairs eight apart lie together
            eights = given.reshape(groups, rows // 32, 4, 4, 2).transpose(2, 3)
        return eights.reshape(groups, rows).t().contiguous()

    return compute(order, scale, dtype=scale.dtype, shape=shape)


def _sixteen_times(scale: torch.Tensor) -> torch.Tensor:
    return scale.float() * 16


def _product(of_groups: torch.Tensor, of_channels: torch.Tensor) -> torch.Tensor:
    return of_groups.half() * of_channels.half()
