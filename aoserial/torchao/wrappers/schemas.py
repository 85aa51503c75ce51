"""Fields of wrappers around weights, and of torchao's first weights. Torch-free."""

from __future__ import annotations

from aoserial.schema import Field, Schema, attribute, optional_attribute, optional_tensor, tensor
from aoserial.torchao.wrapping import SETTINGS

WEIGHT = "original_weight_tensor"

KEYWORDS = Schema(
    type="torchao.QuantizationKeywords",
    version=1,
    kind="object",
    fields=(
        optional_attribute("activation_granularity", "any", None, doc="one of the Per* objects"),
        optional_attribute("activation_dtype", "dtype?", None),
        optional_attribute("target_dtype", "dtype?", None),
        optional_attribute("block_size", "int?", None, doc="of MX, 0.12"),
        optional_attribute("scale", "any", None, doc="of MX, 0.12: nothing"),
        optional_attribute("quant_min", "int?", None, doc="of SmoothQuant's quantizer"),
    ),
    doc="arguments of a function that quantizes activations",
)
PARTIAL = Schema(
    type="torchao.QuantizationPartial",
    version=1,
    kind="object",
    fields=(attribute("function", "str"), attribute("keywords", f"object:{KEYWORDS.type}")),
    doc="0.5 and 0.6: a function with its arguments",
)

OBJECT_SCHEMAS = (KEYWORDS, PARTIAL)


def _weight(*, also: tuple[Field, ...] = ()) -> tuple[Field, ...]:
    """The weight that is wrapped, whose parts can have any name."""
    return (attribute(WEIGHT, "object:torchao.InnerTensor", doc="the weight"), *also)


_INSIDE = (f"{WEIGHT}.",)
_KEYWORDS = attribute("quant_kwargs", f"object:{KEYWORDS.type}")

DYNAMIC = "torchao.LinearActivationQuantizedTensor"
STATIC = "torchao.WeightTensorWithLinearActivationQuantizationMetadata"
SCALED = "torchao.WeightTensorWithLinearActivationScaleMetadata"
EXPERTS = "torchao.FakeExtraDimTensor"
FIRST_INT8 = "torchao.Int8WeightOnlyQuantizedLinearWeight"
FIRST_DYNAMIC_INT8 = "torchao.Int8DynamicallyQuantizedLinearWeight"
FIRST_INT4 = "torchao.Int4WeightOnlyQuantizedLinearWeight"

OLDER = (
    Schema(
        type=DYNAMIC,
        version=1,
        holds=_INSIDE,
        fields=(
            *_weight(),
            attribute("input_quant_func", "any", doc="a function, or one with arguments"),
            *SETTINGS,
        ),
        doc="torchao 0.2 to 0.6",
    ),
)

_FIRST_INT8_FIELDS = (
    tensor("int_data", "int8", doc="[K, N], unless transposed"),
    tensor("q_scales", shape=("N",)),
    attribute("transposed", "bool"),
)

SCHEMAS = (
    Schema(
        type=DYNAMIC,
        version=2,
        holds=_INSIDE,
        fields=(*_weight(), attribute("input_quant_func", "str"), _KEYWORDS, *SETTINGS),
        doc="torchao 0.7 to 0.17: the activation is quantized as it comes",
    ),
    Schema(
        type=STATIC,
        version=1,
        holds=_INSIDE,
        fields=(
            *_weight(),
            tensor("scale"),
            optional_tensor("zero_point"),
            attribute("input_quant_func_static", "str"),
            _KEYWORDS,
            *SETTINGS,
        ),
        doc="torchao 0.6 to 0.17: the activation is quantized with a scale that is known",
    ),
    Schema(
        type=SCALED,
        version=1,
        holds=_INSIDE,
        fields=(*_weight(), tensor("scale", doc="the activation is divided by it"), *SETTINGS),
        doc="torchao 0.6 to 0.17",
    ),
    Schema(
        type=EXPERTS,
        version=1,
        holds=("head_tensor.", "tensor_tail.", "tensor_list."),
        fields=(
            attribute("num_tensors", "int"),
            attribute("head_tensor", "object:torchao.InnerTensor"),
            attribute("tensor_tail", "object:torchao.InnerTensor?"),
            attribute("tensor_list", "any", doc="the same tensors in a list"),
            *SETTINGS,
        ),
        doc="torchao 0.11 to 0.15: a weight for each expert, shown as one",
    ),
    Schema(
        type=FIRST_INT8,
        version=1,
        fields=_FIRST_INT8_FIELDS,
        doc="torchao 0.1 to 0.14",
    ),
    Schema(
        type=FIRST_DYNAMIC_INT8,
        version=1,
        fields=_FIRST_INT8_FIELDS,
        doc="torchao 0.1 to 0.14: the activation is quantized as it comes",
    ),
    Schema(
        type=FIRST_INT4,
        version=1,
        fields=(
            tensor("int_data", "int32", "uint8", doc="tinygemm's tiles; uint8 packed for a CPU"),
            tensor("scales_and_zeros", doc="[G, N, 2]"),
            attribute("transposed", "bool"),
            attribute("groupsize", "int"),
            attribute("inner_k_tiles", "int"),
            optional_attribute(
                "zero_point_domain", "enum:torchao.ZeroPointDomain?", None, doc="0.11 and later"
            ),
            optional_attribute("preserve_zero", "bool?", None, doc="0.11 and later: of from_float"),
        ),
        doc="torchao 0.1 to 0.14: w = (q - 8) * s + z",
    ),
)
