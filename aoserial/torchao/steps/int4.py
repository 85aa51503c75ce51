"""From torchao's int4 types to ours, whose codes run from 0 to 15, even k in the low nibble."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Symbol, Value
from aoserial.storage import Part, Shape, compute
from aoserial.torchao.steps.settings import activation, granularity

if TYPE_CHECKING:
    import torch

_INNER = 4  # int32 a lane in the last dimension of a tile: inner_k_tiles 8, all torchao writes


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
            qdata=compute(_signed_to_unsigned, codes, dtype="uint8", shape=codes.shape),
            scale=_rows_first(record.parts["scale"]),
            zero_point=_rows_first(record.parts["zero_point"]),
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
    if packed.shape[0] * 8 < rows or packed.shape[1] * _INNER * 32 < columns:
        raise FieldError(
            f"{packed.shape[0]} x {packed.shape[1]} tiles hold less than the shape says"
        )
    scales = record.parts["scale_and_zero"]
    if scales.shape[0] < groups or scales.shape[1] < rows:
        raise FieldError("holds fewer scales than the shape needs").locate(field="scale_and_zero")

    def codes_of(tiles: torch.Tensor) -> torch.Tensor:
        return _untile(tiles)[:rows, : columns // 2].contiguous()

    def column(which: int) -> Part:
        def take(both: torch.Tensor) -> torch.Tensor:
            return both[:groups, :rows, which].t().contiguous()

        return compute(take, scales, dtype=scales.dtype, shape=(rows, groups))

    return (
        _to_ours(record, "float")
        .drop("scale_and_zero")
        .put(
            qdata=compute(codes_of, packed, dtype="uint8", shape=(rows, columns // 2)),
            scale=column(0),
            zero_point=column(1),
        )
    )


@migration("torchao.Int4PlainInt32Tensor", 1, 1, becomes="aoserial.Int4Tensor")
def leave_plain_int32(record: Record) -> Record:
    """Int4PlainInt32Tensor of torchao 0.14 to 0.18, as XPU has it: the codes are the same bytes.

    Proved by fixtures/torchao-0.18.0/int4_plain_int32_constructed.
    """
    zero_point = record.parts["zero_point"]
    if zero_point.dtype != "int8":
        raise FieldError(
            f"is {zero_point.dtype}: this is NPU's own packing of the codes, which is not public"
        ).locate(field="zero_point")
    rows, columns = _matrix(record)
    return _to_ours(record, "int").put(
        qdata=record.parts["qdata"].view("uint8", (rows, columns // 2)),
        scale=_rows_first(record.parts["scale"]),
        zero_point=_rows_first(zero_point),
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


def _rows_first(part: Part) -> Part:
    """[..., G, N] as [..., N, G]."""
    shape: Shape = (*part.shape[:-2], part.shape[-1], part.shape[-2])
    return compute(_transpose, part, dtype=part.dtype, shape=shape)


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-2, -1).contiguous()


def _signed_to_unsigned(packed: torch.Tensor) -> torch.Tensor:
    """Adds 8 to both codes of each byte, which flips the top bit of each nibble."""
    import torch  # torch-free module

    return packed.view(torch.uint8) ^ 0x88


def _untile(tiles: torch.Tensor) -> torch.Tensor:
    """Bytes of codes [N, K/2], even k in the low nibble, of tiles int32 [N/8, K/128, 32, 4].

    Lane t of a tile holds row t // 4. Its int32 number j stands for 16 bytes of the row, of which
    it has bytes t % 4 + 4 i for i from 0 to 3: nibbles 0 to 3 are their even k, 4 to 7 their odd.
    """
    import torch  # torch-free module

    row_tiles, column_tiles = tiles.shape[:2]
    lanes = tiles.view(row_tiles, column_tiles, 8, 4, _INNER)
    of_byte = [(lanes >> 4 * i & 15) | (lanes >> 16 + 4 * i & 15) << 4 for i in range(4)]
    whole = torch.stack(of_byte, dim=-1).to(torch.uint8)  # [NT, KT, row, t % 4, j, i]
    return whole.permute(0, 2, 1, 4, 5, 3).reshape(row_tiles * 8, -1)


def _matrix(record: Record) -> tuple[int, int]:
    if len(record.shape) != 2 or record.shape[1] % 2:
        raise FieldError(f"shape is {list(record.shape)}, expected [N, K] with even K")
    return record.shape[0], record.shape[1]


def _group_size(record: Record) -> int:
    block = record.attributes["block_size"]
    if not isinstance(block, tuple) or not block or not isinstance(block[-1], int) or block[-1] < 1:
        raise FieldError(f"is {block!r:.60}, expected positive lengths").locate(field="block_size")
    return block[-1]
