"""From torchao's first classes of quantized weights, `torchao.quantization.subclass`, to ours."""

from __future__ import annotations

from dataclasses import replace

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol
from aoserial.storage import describe
from aoserial.torchao.steps.int4 import split_scale_and_zero, transposed, untiled
from aoserial.torchao.steps.int4_cpu import INT4_CPU_ISA, REPAIRS_INT4_CPU, unpack_int4_cpu
from aoserial.torchao.steps.settings import activation, granularity
from aoserial.torchao.wrappers.schemas import FIRST_DYNAMIC_INT8, FIRST_INT4, FIRST_INT8

# quant_int8_dynamic_per_token_linear: scales of max|x| / 127, none below 1e-5
_PER_TOKEN = activation(
    kind="dynamic",
    dtype="int8",
    granularity=granularity("token"),
    narrow_range=True,
    least_scale=1e-5,
)


@migration(FIRST_INT8, 1, 1, becomes="aoserial.Int8Tensor")
def leave_first_int8(record: Record) -> Record:
    """Int8WeightOnlyQuantizedLinearWeight of torchao 0.1 to 0.14: codes lay as [K, N].

    Proved by fixtures/torchao-0.1/old_int8wo and torchao-0.2.0/autoquant_int8wo2.
    """
    return _int8(record, None)


@migration(FIRST_DYNAMIC_INT8, 1, 1, becomes="aoserial.Int8Tensor")
def leave_first_dynamic_int8(record: Record) -> Record:
    """Int8DynamicallyQuantizedLinearWeight of torchao 0.1 to 0.14: the same, activation in int8.

    Proved by fixtures/torchao-0.13.0/old_int8da and torchao-0.4.0/autoquant_int8da.
    """
    return _int8(record, _PER_TOKEN)


_ISA = replace(
    INT4_CPU_ISA,
    concerns=lambda record: (
        record.parts["int_data"].dtype == "uint8" and INT4_CPU_ISA.concerns(record)
    ),
)


@migration(
    FIRST_INT4,
    1,
    1,
    becomes="aoserial.Int4Tensor",
    asks=(_ISA,),
    repairs=REPAIRS_INT4_CPU,
)
def leave_first_int4(record: Record, *, int4_cpu_isa: str | None) -> Record:
    """Int4WeightOnlyQuantizedLinearWeight of torchao 0.1 to 0.14: tinygemm's tiles, or for a CPU.

    Its only arithmetic was the kernel's, in float32. zero_point_domain and preserve_zero, of 0.11
    and later, chose how codes were made; the kernel's zero points are always in weights.
    Proved by fixtures/torchao-0.1/old_int4wo, torchao-0.11.0/old_int4wo and, packed for a CPU,
    torchao-0.12.0/old_int4wo.
    """
    given, (rows, columns) = record.attributes, _matrix(record)
    group = given["groupsize"]
    if given["transposed"]:
        raise FieldError("is set: a transposed weight is not read").locate(field="transposed")
    if given["zero_point_domain"] not in (None, Symbol("torchao.ZeroPointDomain", "FLOAT")):
        raise FieldError("is not FLOAT").locate(field="zero_point_domain")
    if not isinstance(group, int) or group < 1:
        raise FieldError(f"is {group!r:.40}, expected a positive length").locate(field="groupsize")
    packed = record.parts["int_data"]
    if packed.dtype == "int32":
        codes = untiled(packed, record.shape)
    else:
        codes = unpack_int4_cpu(packed, (rows, columns), int4_cpu_isa or "default")
    both = record.parts["scales_and_zeros"]
    scale, zero_point = split_scale_and_zero(both, (rows, -(-columns // group)))
    return Record(
        type="aoserial.Int4Tensor",
        version=1,
        shape=record.shape,
        dtype=record.dtype,
        attributes=FrozenMap(
            block_size=(1, group), zero_domain=Symbol("aoserial.ZeroDomain", "float")
        ),
        parts={
            "qdata": codes,
            "scale": scale,
            "zero_point": zero_point,
        },
    )


def _int8(record: Record, settings: Nested | None) -> Record:
    """Codes of [K, N] as [N, K]; `transposed` says that the tensor itself is [K, N]."""
    rows, columns = _matrix(record)
    codes, scale = record.parts["int_data"], record.parts["q_scales"]
    if codes.shape != (columns, rows) or scale.shape != (rows,):
        raise FieldError(
            f"{describe(codes)} and {describe(scale)} are not those of [{rows}, {columns}]"
        ).locate(field="int_data")
    if record.attributes["transposed"]:
        raise FieldError("is set: a transposed weight is not read").locate(field="transposed")
    return Record(
        type="aoserial.Int8Tensor",
        version=1,
        shape=record.shape,
        dtype=record.dtype,
        attributes=FrozenMap(block_size=(1, columns), activation=settings),
        parts={"qdata": transposed(codes), "scale": scale.view(scale.dtype, (rows, 1))},
    )


def _matrix(record: Record) -> tuple[int, int]:
    if len(record.shape) != 2 or record.shape[1] % 2:
        raise FieldError(f"is {list(record.shape)}, expected [N, K] with even K").locate(
            field="shape"
        )
    return record.shape[0], record.shape[1]
