"""From torchao's Int8Tensor and IntxUnpackedToInt8Tensor to ours. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Symbol, Value
from aoserial.torchao.steps.settings import (
    activation,
    granularity,
    granularity_of,
    mapping,
    translate,
)

_PER_TOKEN = "int8_asym_per_token"


@migration("torchao.Int8Tensor", 1, 1, becomes="aoserial.Int8Tensor")
def leave_torchao_int8(record: Record) -> Record:
    """Int8Tensor of torchao 0.15 to 0.18: same bytes, activation settings in one object.

    A zero point that is all zeros is kept: values do not decide what a file holds. 0.15 gave the
    scales of groups one dimension more than the weight has (torchao-0.15.0/int8wo_pergroup_v2).
    Proved by fixtures/torchao-0.18.0/int8static_int8w.
    """
    given = record.attributes
    scale = record.parts["scale"]
    if len(scale.shape) == len(record.shape) + 1 and scale.shape[-1] == 1:
        scale = scale.view(scale.dtype, scale.shape[:-1])
    names = {"act_quant_scale": "act_scale", "act_quant_zero_point": "act_zero_point"}
    return (
        record.at(1, type="aoserial.Int8Tensor")
        .drop("act_quant_kwargs", "dtype")
        .rename(**{old: new for old, new in names.items() if old in record.parts})
        .put(scale=scale)
        .set(
            activation=_int8_activation(given["act_quant_kwargs"], record),
            reduce_range=bool(given["reduce_range"]),
        )
    )


@migration("torchao.IntxUnpackedToInt8Tensor", 1, 1, becomes="aoserial.IntxTensor")
def leave_torchao_intx(record: Record) -> Record:
    """IntxUnpackedToInt8Tensor of torchao 0.14 to 0.18: same bytes.

    Proved by fixtures/torchao-0.18.0/int8da_int4w_intx_v2.
    """
    given = record.attributes
    bits = str(given["target_dtype"]).removeprefix("int")
    if not bits.isdecimal():
        raise FieldError(f"is {given['target_dtype']!r}, expected int1 to int8").locate(
            field="target_dtype"
        )
    return (
        record.at(1, type="aoserial.IntxTensor")
        .drop("target_dtype", "dtype", "activation_quantization")
        .set(
            bit_width=int(bits),
            zero_domain=Symbol("aoserial.ZeroDomain", "int"),
            activation=_intx_activation(given["activation_quantization"]),
        )
    )


def _int8_activation(kwargs: Value, record: Record) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return activation(
        kind="static" if "act_quant_scale" in record.parts else "dynamic",
        dtype="int8",
        granularity=granularity_of(kwargs["granularity"]),
        mapping=translate(kwargs["mapping_type"], "aoserial.Mapping"),
        reduce_range=kwargs["reduce_range"],
    )


def _intx_activation(given: Value) -> Nested | None:
    """torchao stores the member's value, a string, and the member where a caller passed it."""
    if given is None:
        return None
    name = given.name.lower() if isinstance(given, Symbol) else given
    if name != _PER_TOKEN:
        raise FieldError(f"is {given!r:.60}, expected None or {_PER_TOKEN!r}").locate(
            field="activation_quantization"
        )
    return activation(
        kind="dynamic",
        dtype="int8",
        granularity=granularity("token"),
        mapping=mapping("asymmetric"),
    )
