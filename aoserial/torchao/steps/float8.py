"""From torchao's float8 weights to ours. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import Nested, Symbol, Value
from aoserial.torchao.float8 import WITH_OUTPUT
from aoserial.torchao.steps.settings import activation, granularity, granularity_of, kernel_hint


@migration("torchao.Float8Tensor", 1, 2)
def drop_bounds_of_the_weight(record: Record) -> Record:
    """Float8Tensor of torchao 0.13: had the bounds that its own scales were chosen with.

    The scales are what came of them, so they say nothing any more; those for activations are in
    act_quant_kwargs, then as later.
    Proved by torchao-0.13.0/float8da_float8w_perrow_v2.
    """
    return record.at(2).drop("hp_value_lb", "hp_value_ub")


@migration("torchao.Float8Tensor", 2, 1, becomes="aoserial.Float8Tensor")
def leave_torchao_float8(record: Record) -> Record:
    """Float8Tensor of torchao 0.14 to 0.18: same bytes, settings gathered in two objects.

    An empty block_size means one block (torchao 0.14 float8_tensor.py, class docstring).
    Proved by fixtures/torchao-0.15.0/float8da_float8w_perrow_v2.
    """
    return _to_ours(record, _activation(record.attributes["act_quant_kwargs"]))


@migration("torchao.PrototypeFloat8Tensor", 1, 1, becomes="aoserial.Float8Tensor")
def leave_prototype_float8(record: Record) -> Record:
    """PrototypeFloat8Tensor of torchao 0.16 to 0.18: a Float8Tensor with a static activation.

    Proved by torchao-0.18.0/float8static_float8w.
    """
    return _static(record).drop("output_act_quant_kwargs")


@migration(
    WITH_OUTPUT,
    1,
    1,
    becomes="aoserial.Float8Tensor",
    lossy="the layer's output is no longer quantized to float8",
)
def leave_prototype_float8_with_output(record: Record) -> Record:
    """The same where the output of the layer was to be quantized, too: ours has no place for it."""
    gone = ("output_act_quant_scale", "output_act_quant_kwargs")
    held = {*record.attributes, *record.parts}
    return _static(record).drop(*(name for name in gone if name in held))


@migration(
    "torchao.FbgemmFp8Tensor",
    1,
    1,
    becomes="aoserial.Float8Tensor",
    lossy="the bound of the activation's magnitude, 1200 unless someone chose another",
)
def leave_fbgemm_fp8(record: Record) -> Record:
    """FbgemmFp8Tensor of torchao 0.12 and 0.13: a scale a row, flat.

    The bound is a tensor, and what tensors hold decides no attribute of ours.
    Proved by torchao-0.13.0/fbgemm_fp8.
    """
    *lead, columns = record.shape
    scale = record.parts["scale"]
    rows = granularity("row", dim=-1)
    hint = kernel_hint(Symbol("torchao.KernelPreference", "FBGEMM"))
    return (
        record.at(1, type="aoserial.Float8Tensor")
        .drop("activation_scale_ub")
        .rename(float8_data="qdata")
        .put(scale=scale.view(scale.dtype, (*scale.shape, 1)))
        .set(
            block_size=(*(1 for _ in lead), columns),
            activation=activation(kind="dynamic", dtype="float8_e4m3fn", granularity=rows),
            kernel=hint,
        )
    )


def _static(record: Record) -> Record:
    """The prototype as ours, what it says of the layer's output left alone."""
    kwargs = record.attributes["act_quant_kwargs"]
    if "act_quant_scale" not in record.parts:
        return _to_ours(record, _activation(kwargs))
    if kwargs is None:
        raise FieldError("is there, but nothing says what it scales").locate(
            field="act_quant_scale"
        )
    ours = _to_ours(record, _activation(kwargs, kind="static"))
    return ours.rename(act_quant_scale="act_scale")


def _to_ours(record: Record, quantized: Nested | None) -> Record:
    given = record.attributes
    block_size = given["block_size"]
    if block_size is None:
        raise FieldError("is not recorded, so what a scale spans is unknown").locate(
            field="block_size"
        )
    scale = record.parts["scale"]
    if block_size == () or scale.shape == ():
        block_size = record.shape
        scale = scale.view(scale.dtype, (1,) * len(record.shape))
    return (
        record.at(1, type="aoserial.Float8Tensor")
        .drop("mm_config", "act_quant_kwargs", "kernel_preference", "dtype")
        .put(scale=scale)
        .set(
            block_size=block_size,
            activation=quantized,
            kernel=kernel_hint(given["kernel_preference"], given["mm_config"]),
        )
    )


def _activation(kwargs: Value, *, kind: str = "dynamic") -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return activation(
        kind=kind,
        dtype=kwargs["float8_dtype"],
        granularity=granularity_of(kwargs["granularity"]),
        lower_bound=kwargs["hp_value_lb"],
        upper_bound=kwargs["hp_value_ub"],
        kernel=kernel_hint(kwargs["kernel_preference"], kwargs["mm_config"]),
    )
