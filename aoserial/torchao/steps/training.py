"""From what torchao wraps around weights in training to our types. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.torchao.training import WRAPPERS

# of any wrapper → ours
_PARTS = {
    "_tensor": "weight",
    "_data": "weight",
    "_precomputed_scale": "precomputed_scale",
    "_static_scale": "precomputed_scale",
    "_scale_buffer": "precomputed_scale",
    "_amax_buffer": "last_amax",
    "_amax_history_buffer": "amax_history",
}


def unwrap_weight(record: Record) -> Record:
    """A weight that torchao quantizes anew at every step: the weight itself, and the settings.

    The name of the class comes first among the settings, since it says what they are of. What is
    None was left to a default.
    Proved by fixtures/torchao-0.18.0/{float8_fsdp_weight,int8_mixed_training,bitnet_training,
    moe_training_weight}; delayed and static scaling by torchao's classes alone.
    """
    given = tuple((name, value) for name, value in record.attributes.items() if value is not None)
    return (
        record.at(1, type="aoserial.UnquantizedTensor")
        .drop(*record.attributes)
        .rename(**{old: new for old, new in _PARTS.items() if old in record.parts})
        .set(settings=(("class", record.type.removeprefix("torchao.")), *given))
    )


for _schema in WRAPPERS:
    migration(_schema.type, 1, 1, becomes="aoserial.UnquantizedTensor")(unwrap_weight)


@migration("torchao.AutoquantPlainWeight", 1, 1, becomes="aoserial.UnquantizedTensor")
def unwrap_autoquant_weight(record: Record) -> Record:
    """A weight that torchao 0.2 to 0.16 measured and left as it is: `AQBFloat16LinearWeight` …

    In 0.8 such a tensor has bytes of its own and its layer multiplies by `weight`, which is made of
    the same; that one is kept.
    Proved by fixtures/torchao-0.8.0/autoquant_bf16 and fixtures/torchao-0.15.0/autoquant_bf16.
    """
    held = [name for name in ("weight", "data") if name in record.parts]
    if not held:
        raise FieldError("has no values").locate(field="weight")
    kept = record.drop(*held[1:]).rename(**{held[0]: "weight"})
    return kept.at(1, type="aoserial.UnquantizedTensor").set(
        settings=(("class", record.type.removeprefix("torchao.")),)
    )


@migration("torchao.Int8QuantizedTrainingLinearWeight", 1, 1, becomes="aoserial.Int8Tensor")
def leave_int8_training(record: Record) -> Record:
    """Int8QuantizedTrainingLinearWeight of torchao 0.5 to 0.18: same bytes, a scale a row.

    That its layers round to codes at random in training says nothing of the weight.
    Proved by fixtures/torchao-0.18.0/int8_training.
    """
    rows, columns = record.parts["int_data"].shape
    scale = record.parts["scale"]
    return (
        record.at(1, type="aoserial.Int8Tensor")
        .rename(int_data="qdata")
        .put(scale=scale.view(scale.dtype, (rows, 1)))
        .set(block_size=(1, columns))
    )


@migration("torchao.Float8TrainingTensor", 1, 1, becomes="aoserial.Float8TrainingTensor")
def leave_float8_training(record: Record) -> Record:
    """Float8TrainingTensor of torchao 0.4 to 0.18: same bytes.

    Proved by fixtures/torchao-0.18.0/float8_training_tensor.
    """
    given = record.attributes
    if given["_orig_dtype"] != record.dtype:
        raise FieldError(f"is {given['_orig_dtype']}, but the tensor is {record.dtype}").locate(
            field="_orig_dtype"
        )
    settings = ("_linear_mm_config", "_gemm_input_role", "_axiswise_dim")
    return (
        record.at(1, type="aoserial.Float8TrainingTensor")
        .drop("_orig_dtype", *settings)
        .rename(_data="qdata", _scale="scale")
        .set(settings=tuple((name.removeprefix("_"), given[name]) for name in settings))
    )
