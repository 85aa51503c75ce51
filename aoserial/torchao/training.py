"""What torchao wraps around weights in training, as it pickled them. Torch-free.

Most hold the plain weight and settings, which differ from release to release and which nothing here
computes with; so they are kept as pairs of names and values, whatever they are.

Sources: class bodies of each release, and fixtures/torchao-<release>/{float8_fsdp_weight,
float8_training_tensor,int8_mixed_training,int8_training,bitnet_training,moe_training_weight,
autoquant_bf16}.
"""

from __future__ import annotations

from aoserial.record import Record
from aoserial.schema import (
    Field,
    Nested,
    Schema,
    Symbol,
    Value,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.forms import Form, PickledObject, PickledType


def _tensor(name: str, *fields: Field, doc: str) -> Schema:
    return Schema(type=f"torchao.{name}", version=1, fields=fields, doc=doc)


_MATMUL = attribute("_linear_mm_config", "any", doc="how to multiply, forward and backward")
_DTYPE = optional_attribute("_dtype", "dtype?", None, doc="0.8 and later: of the cast")

# the weight itself, with settings
WRAPPERS = (
    _tensor(
        "WeightWithDynamicFloat8CastTensor",
        tensor("_tensor"),
        optional_tensor("_precomputed_scale"),
        *(_MATMUL, _DTYPE),
        doc="torchao 0.4 to 0.18: FSDP casts before it gathers",
    ),
    _tensor(
        "WeightWithDelayedFloat8CastTensor",
        tensor("_tensor"),
        tensor("_amax_buffer"),
        tensor("_amax_history_buffer"),
        tensor("_scale_buffer"),
        *(_MATMUL, _DTYPE),
        attribute("is_amax_initialized", "bool"),
        doc="torchao 0.4 to 0.9: the scale of each cast comes from those before",
    ),
    _tensor(
        "WeightWithStaticFloat8CastTensor",
        tensor("_tensor"),
        tensor("_static_scale"),
        *(_MATMUL, _DTYPE),
        doc="torchao 0.5 to 0.9",
    ),
    _tensor(
        "ScaledGroupedMMTensor",
        tensor("_data"),
        optional_attribute("scaling_type", "any", None, doc="0.13 and later"),
        optional_attribute("kernel_preference", "any", None, doc="0.16"),
        doc="torchao 0.12 to 0.16: the weights of experts",
    ),
    _tensor(
        "Float8TrainingWeightWrapperTensor",
        *(tensor("_data"), attribute("config", "any")),
        doc="torchao 0.17 and later",
    ),
    _tensor(
        "MXFP8TrainingWeightWrapperTensor",
        *(tensor("_data"), attribute("config", "any")),
        doc="torchao 0.17 and later",
    ),
    _tensor(
        "Int8MixedPrecisionTrainingLinearWeight",
        *(tensor("_data"), attribute("config", "any")),
        doc="torchao 0.5 to 0.18",
    ),
    _tensor(
        "BitNetTrainingLinearWeight",
        *(tensor("_data"), optional_tensor("_precomputed_scale")),
        doc="torchao 0.6 to 0.18",
    ),
)

PLAIN_WEIGHT = _tensor(
    "AutoquantPlainWeight",
    optional_tensor("weight", doc="0.8 and later: what its layers multiply by"),
    optional_tensor("data", doc="up to 0.8: what the tensor itself holds; the same"),
    doc="torchao 0.2 to 0.16: autoquant found that it should be left as it is",
)

INT8_TRAINING_TENSOR = _tensor(
    "Int8QuantizedTrainingLinearWeight",
    tensor("int_data", "int8", shape=("N", "K")),
    tensor("scale", shape=("N",)),
    doc="torchao 0.5 to 0.18",
)

FLOAT8_TRAINING_TENSOR = _tensor(
    "Float8TrainingTensor",
    tensor("_data"),
    tensor("_scale", "float32", doc="the codes are values multiplied by it"),
    attribute("_orig_dtype", "dtype", doc="the logical dtype"),
    attribute("_linear_mm_config", "any"),
    attribute("_gemm_input_role", "any"),
    optional_attribute("_axiswise_dim", "int?", None, doc="0.6 and later"),
    doc="Float8Tensor of torchao 0.4 to 0.12, Float8TrainingTensor of 0.13 to 0.18",
)

SCHEMAS = (*WRAPPERS, PLAIN_WEIGHT, INT8_TRAINING_TENSOR, FLOAT8_TRAINING_TENSOR)

# -- where they were, and what they held ---------------------------------------------------------


def _settings_as_pairs(record: Record) -> Record:
    """Helper objects as (class, ((name, value) …)), members of enums as `class.member`."""
    return record.set(**{name: plain_value(value) for name, value in record.attributes.items()})


def plain_value(value: Value) -> Value:
    """`value` with helper objects and members of enums as pairs and texts, of any library."""
    match value:
        case tuple():
            return tuple(plain_value(item) for item in value)
        case Nested():
            pairs = tuple((name, plain_value(item)) for name, item in value.fields.items())
            return (value.type.rpartition(".")[2], pairs)
        case Symbol(enum="pickle.name"):
            return value.name
        case Symbol():
            return f"{value.enum.rpartition('.')[2]}.{value.name}"
        case _:
            return value


def _of_tensor_data(record: Record) -> Record:
    """Up to 0.8 autoquant's classes were tensors with bytes of their own."""
    return record.rename(**{"(data)": "data"})


def _class(name: str, *paths: str, has: str) -> PickledType:
    """A class whose schema's optional fields cover all its forms."""
    form = Form(version=1, releases="all", has=(has,), adapt=_settings_as_pairs)
    return PickledType(type=f"torchao.{name}", paths=paths, forms=(form,))


_FSDP = "torchao.float8.fsdp_utils"
_MOE = "torchao.prototype.moe_training.tensor"
_TRAINING = "torchao.prototype.quantized_training"

CLASSES = (
    *(
        _class(name, f"{_FSDP}.{name}", has="_tensor")
        for name in (
            "WeightWithDynamicFloat8CastTensor",
            "WeightWithDelayedFloat8CastTensor",
            "WeightWithStaticFloat8CastTensor",
        )
    ),
    *(
        _class(name, f"{_MOE}.{name}", has="_data")
        for name in (
            "ScaledGroupedMMTensor",
            "Float8TrainingWeightWrapperTensor",
            "MXFP8TrainingWeightWrapperTensor",
        )
    ),
    *(
        _class(name, f"{_TRAINING}.{module}.{name}", has=has)
        for module, name, has in (
            ("int8_mixed_precision", "Int8MixedPrecisionTrainingLinearWeight", "_data"),
            ("bitnet", "BitNetTrainingLinearWeight", "_data"),
            ("int8", "Int8QuantizedTrainingLinearWeight", "int_data"),
        )
    ),
    _class(
        "Float8TrainingTensor",
        "torchao.float8.float8_tensor.Float8Tensor",  # 0.4 to 0.12; today's is another
        "torchao.float8.float8_training_tensor.Float8TrainingTensor",
        has="_data",
    ),
    PickledType(
        type="torchao.AutoquantPlainWeight",
        paths=tuple(
            f"{module}.{name}"
            for module in (
                "torchao.quantization.autoquant",
                "torchao.prototype.quantization.autoquant_v2",
            )
            for name in (
                *("AQFloatLinearWeight", "Float32Tensor", "BFloat16Tensor", "Float16Tensor"),
                *("AQFloat32LinearWeight", "AQBFloat16LinearWeight", "AQFloat16LinearWeight"),
            )
        ),
        forms=(
            Form(version=1, releases="0.2 to 0.8", has=("(data)",), adapt=_of_tensor_data),
            Form(version=1, releases="0.8 to 0.16", has=("weight",), lacks=("(data)",)),
        ),
    ),
)

OBJECTS = (
    *(
        PickledObject(
            type=f"torchao.{name}",
            paths=tuple(
                f"torchao.float8.{module}.{name}"
                for module in ("float8_tensor", "float8_training_tensor")  # to 0.12, from 0.13
            ),
            positional=positional,
        )
        for name, positional in {
            "LinearMMConfig": ("output", "grad_input", "grad_weight"),
            "ScaledMMConfig": ("emulate", "use_fast_accum", "fp8_output", "pad_inner_dim"),
        }.items()
    ),
    PickledObject(
        type="torchao.Int8MixedPrecisionTrainingConfig",
        paths=(f"{_TRAINING}.int8_mixed_precision.Int8MixedPrecisionTrainingConfig",),
        # the last in 0.5 alone; a dataclass from 0.10 on
        positional=("output", "grad_input", "grad_weight", "fsdp_param_dtype"),
    ),
)
