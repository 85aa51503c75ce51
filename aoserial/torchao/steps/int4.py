"""From torchao's int4 types to ours, whose codes run from 0 to 15, even k in the low nibble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoserial.errors import FieldError, OpaqueBytesError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Symbol, Value
from aoserial.storage import Part, Shape, compute, describe
from aoserial.torchao.steps.settings import activation, granularity

if TYPE_CHECKING:
    import torch


@migration("torchao.Int4Tensor", 1, 1, becomes="aoserial.Int4Tensor")
def leave_torchao_int4(record: Record) -> Record:
    """Int4Tensor of torchao 0.13 to 0.18: codes move up by 8, groups come after rows.

    q * s + z with q from -8 is (u - 8) * s + z with u from 0: exact.
    Proved by fixtures/torchao-0.18.0/int4wo_fmt_plain.
    """
    codes = record.parts["qdata"]
    return (
        _to_ours(record, "float", "activation_dtype")
        .put(
            qdata=compute(_signed_to_unsigned, codes, dtype="uint8", shape=codes.shape, by_rows=1),
            scale=transposed(record.parts["scale"]),
            zero_point=transposed(record.parts["zero_point"]),
        )
        .set(activation=_activation(record.attributes["activation_dtype"]))
    )


@migration("torchao.Int4TilePackedTo4dTensor", 1, 1, becomes="aoserial.Int4Tensor")
def unpack_tiles(record: Record) -> Record:
    """Int4TilePackedTo4dTensor of torchao 0.14 to 0.18: tinygemm's tiles are undone, padding cut.

    The map is that of `aten::_convert_weight_to_int4pack` for CUDA (int4mm.cu); ROCm writes another
    order under the same shape, which no field tells apart.
    Proved by fixtures/torchao-0.18.0/int4wo_fmt_tile_packed_to_4d.
    """
    rows, columns = _matrix(record)
    groups = -(-columns // _group_size(record))
    packed = record.parts["qdata"]
    scale, zero_point = split_scale_and_zero(record.parts["scale_and_zero"], (rows, groups))
    return (
        _to_ours(record, "float")
        .drop("scale_and_zero")
        .put(qdata=untiled(packed, record.shape), scale=scale, zero_point=zero_point)
    )


@migration(
    "torchao.Int4PlainInt32Tensor",
    1,
    1,
    becomes="aoserial.Int4Tensor",
    repairs="two devices under one class: XPU has codes from 0 with integer zero points, an NPU "
    "signed ones in an order of its own; the dtype of zero_point alone tells",
)
def leave_plain_int32(record: Record) -> Record:
    """Int4PlainInt32Tensor of torchao 0.14 to 0.18, as XPU has it: the codes are the same bytes.

    Raises:
        OpaqueBytesError: those of an NPU, whose zero points are floating point.

    Proved by fixtures/torchao-0.18.0/int4_plain_int32_constructed.
    """
    zero_point = record.parts["zero_point"]
    if zero_point.dtype != "int8":
        raise OpaqueBytesError(
            f"zero_point is {zero_point.dtype}, so its codes are in the order of an NPU"
        )
    rows, columns = _matrix(record)
    return _to_ours(record, "int").put(
        qdata=record.parts["qdata"].view("uint8", (rows, columns // 2)),
        scale=transposed(record.parts["scale"]),
        zero_point=transposed(zero_point),
    )


def _to_ours(record: Record, domain: str, *gone: str) -> Record:
    return (
        record.at(1, type="aoserial.Int4Tensor")
        .drop("shape", *gone)
        .set(zero_domain=Symbol("aoserial.ZeroDomain", domain))
    )


def _activation(dtype: Value) -> Nested | None:
    """torchao's bfloat16 leaves the activation as it is; fp8 quantizes its rows."""
    if dtype in (None, "bfloat16"):
        return None
    return activation(kind="dynamic", dtype=dtype, granularity=granularity("row", dim=-1))


def transposed(part: Part) -> Part:
    """[..., G, N] as [..., N, G], or the other way round."""
    shape: Shape = (*part.shape[:-2], part.shape[-1], part.shape[-2])
    return compute(_transpose, part, dtype=part.dtype, shape=shape)


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-2, -1).contiguous()


def nibbles_swapped(packed: Part) -> Part:
    """Bytes of two codes whose first was in the high nibble, with it in the low one."""
    return compute(_swap_nibbles, packed, dtype="uint8", shape=packed.shape, by_rows=1)


def _swap_nibbles(packed: torch.Tensor) -> torch.Tensor:
    return packed << 4 | packed >> 4


def _signed_to_unsigned(packed: torch.Tensor) -> torch.Tensor:
    """Adds 8 to both codes of each byte, which flips the top bit of each nibble."""
    import torch  # torch-free module

    return packed.view(torch.uint8) ^ 0x88


def untiled(packed: Part, shape: Shape) -> Part:
    """Codes uint8 [..., N, K/2], even k in the low nibble, of tinygemm's tiles; padding is cut.

    Args:
        packed: int32 [..., N/8, K/(32 J), 32, J], J = inner_k_tiles / 2: 1, 2 or 4.
        shape: logical, [..., N, K].

    Raises:
        FieldError: no tiles, or too few.
    """
    *lead, rows, columns = shape
    *outer, row_tiles, column_tiles, lanes, inner = (
        packed.shape if len(packed.shape) > 3 else [0] * 4
    )
    if packed.dtype != "int32" or outer != lead or lanes != 32:
        raise FieldError(
            f"{describe(packed)} are no tiles: expected int32 [..., N/8, K/(32 J), 32, J]"
        )
    if row_tiles * 8 < rows or column_tiles * inner * 32 < columns:
        raise FieldError(f"{row_tiles} x {column_tiles} tiles hold less than the shape says")

    def codes_of(tiles: torch.Tensor) -> torch.Tensor:
        from aoserial.kernels import untile  # torch-free module

        return untile(tiles)[..., :rows, : columns // 2].contiguous()

    return compute(
        codes_of,
        packed,
        dtype="uint8",
        shape=(*lead, rows, columns // 2),
        by_rows=1 if lead else 8,
    )


def split_scale_and_zero(both: Part, shape: Shape) -> tuple[Part, Part]:
    """Scales and zero points [..., N, G] of `both` [..., G, N, 2], which may be padded like tiles.

    Raises:
        FieldError: there are fewer than `shape`, [..., N, G], says.
    """
    *lead, rows, groups = shape
    *outer, held, across, pair = both.shape if len(both.shape) > 2 else [0] * 3
    if outer != lead or held < groups or across < rows or pair != 2:
        raise FieldError(
            f"{describe(both)} are no scales and zero points of {groups} groups and {rows} rows"
        ).locate(field="scale_and_zero")

    def column(which: int) -> Part:
        def take(tensor: torch.Tensor) -> torch.Tensor:
            return tensor[..., :groups, :rows, which].transpose(-2, -1).contiguous()

        return compute(take, both, dtype=both.dtype, shape=shape)

    return column(0), column(1)


def _matrix(record: Record) -> tuple[int, int]:
    if len(record.shape) != 2 or record.shape[1] % 2:
        raise FieldError(f"shape is {list(record.shape)}, expected [N, K] with even K")
    return record.shape[0], record.shape[1]


def _group_size(record: Record) -> int:
    block = record.attributes["block_size"]
    if not isinstance(block, tuple) or not block or not isinstance(block[-1], int) or block[-1] < 1:
        raise FieldError(f"is {block!r:.60}, expected positive lengths").locate(field="block_size")
    return block[-1]
