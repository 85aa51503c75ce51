"""From torchao's int4 and intx weights that only pickles have, to its newer types or to ours.

Torch-free.
"""

from __future__ import annotations

from dataclasses import replace

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Symbol, Value
from aoserial.torchao.steps.int4 import split_scale_and_zero
from aoserial.torchao.steps.int4_cpu import INT4_CPU_ISA, REPAIRS_INT4_CPU, unpack_int4_cpu
from aoserial.torchao.steps.marlin import marlin_scales, unpack_marlin


@migration("torchao.FbgemmInt4Tensor", 1, 1, becomes="torchao.Int4Tensor")
def rename_fbgemm_int4(record: Record) -> Record:
    """FbgemmInt4Tensor of torchao 0.12: Int4Tensor has the same bytes under other names."""
    group = record.attributes["group_size"]
    return (
        record.at(1, type="torchao.Int4Tensor")
        .drop("group_size")
        .rename(packed_weight="qdata")
        .set(block_size=(*(1 for _ in record.shape[:-1]), group), shape=record.shape)
    )


@migration("torchao.IntxUnpackedTensor", 1, 1, becomes="torchao.IntxUnpackedToInt8Tensor")
def rename_intx_unpacked(record: Record) -> Record:
    """IntxUnpackedTensor of torchao 0.13: had no activation to quantize, and another name.

    Proved by torchao-0.13.0/int3wo_intx_v2.
    """
    return record.at(1, type="torchao.IntxUnpackedToInt8Tensor").set(
        activation_quantization=None, dtype=record.dtype
    )


@migration(
    "torchao.Int4OpaqueTensor",
    1,
    1,
    becomes="aoserial.Int4Tensor",
    asks=(INT4_CPU_ISA,),
    repairs=REPAIRS_INT4_CPU,
)
def unpack_opaque_int4(record: Record, *, int4_cpu_isa: str | None) -> Record:
    """Int4OpaqueTensor of torchao 0.14 to 0.18: codes lie in the order of the machine's kernel.

    Proved by torchao-0.15.0/int4wo_opaque_n64 and the same of avx2 and default.
    """
    rows, columns = _matrix(record.shape)
    groups = -(-columns // _group_size(record.attributes["block_size"]))
    scale, zero_point = split_scale_and_zero(record.parts["scale_and_zero"], (rows, groups))
    return (
        record.at(1, type="aoserial.Int4Tensor")
        .drop("scale_and_zero", "act_mapping_type")
        .put(
            qdata=unpack_int4_cpu(record.parts["qdata"], record.shape, int4_cpu_isa),
            scale=scale,
            zero_point=zero_point,
        )
        .set(zero_domain=Symbol("aoserial.ZeroDomain", "float"))
    )


@migration("torchao.Int4MarlinSparseTensor", 1, 1, becomes="aoserial.Int4Tensor")
def unpack_marlin_sparse(record: Record) -> Record:
    """Int4MarlinSparseTensor of torchao 0.13 to 0.15, which took the transposed weight for its own.

    What it calls its shape is [K, N]. Its zero point is the middle code, 8, which Marlin's kernel
    has built in: that part means nothing.
    Proved by torchao-0.13.0/int4wo_fmt_marlin_sparse.
    """
    given = record.attributes
    if given["num_bits"] != 4:
        raise FieldError(f"is {given['num_bits']!r}, expected 4").locate(field="num_bits")
    columns, rows = _matrix(record.shape)
    group = given["block_size"]
    if not isinstance(group, int) or (group < 1 and group != -1):
        raise FieldError(f"is {group!r:.60}, expected a length or -1").locate(field="block_size")
    return (
        replace(record, shape=(rows, columns))
        .at(1, type="aoserial.Int4Tensor")
        .drop("meta", "num_bits", "zero_point")
        .put(
            qdata=unpack_marlin(record.parts["qdata"], record.parts["meta"], (rows, columns)),
            scale=marlin_scales(record.parts["scale"], (rows, columns), group),
        )
        .set(
            block_size=(1, columns if group == -1 else group),
            zero_domain=Symbol("aoserial.ZeroDomain", "none"),
        )
    )


def _matrix(shape: tuple[int, ...]) -> tuple[int, int]:
    if len(shape) != 2:
        raise FieldError(f"is {list(shape)}, expected two dimensions").locate(field="shape")
    return shape[0], shape[1]


def _group_size(block: Value) -> int:
    if isinstance(block, tuple) and len(block) == 2 and block[0] == 1:
        size = block[1]
        if isinstance(size, int) and size > 0:
            return size
    raise FieldError(f"is {block!r:.60}, expected [1, group size]").locate(field="block_size")
