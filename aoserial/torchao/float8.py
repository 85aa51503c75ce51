"""torchao's float8 weights as it wrote them, but for those of AffineQuantizedTensor. Torch-free.

Training's tensors, of which one was called
Float8Tensor as well, have other paths and are others. Sources: class bodies of each release.
"""

from __future__ import annotations

from aoserial.record import Record
from aoserial.schema import (
    Schema,
    Symbol,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.forms import Form, PickledObject, PickledType

_WORKFLOWS = "torchao.quantization.quantize_.workflows.float8"
_STATIC = "torchao.prototype.quantization.float8_static_quant"

_CODES = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")
_KWARGS = "object:torchao.QuantizeTensorToFloat8Kwargs?"
_SETTINGS = (
    optional_attribute("block_size", "list[int]?", None),
    optional_attribute("mm_config", "object:torchao.Float8MMConfig?", None),
    optional_attribute("act_quant_kwargs", _KWARGS, None),
    optional_attribute(
        "kernel_preference",
        "enum:torchao.KernelPreference?",
        Symbol("torchao.KernelPreference", "AUTO"),
    ),
)

_DTYPE = optional_attribute("dtype", "dtype?", None)

FLOAT8_TENSOR = Schema(
    type="torchao.Float8Tensor",
    version=2,
    fields=(tensor("qdata"), tensor("scale"), *_SETTINGS, _DTYPE),
    doc="torchao 0.14 and later",
)

OLDER = (
    Schema(
        type="torchao.Float8Tensor",
        version=1,
        fields=(
            tensor("qdata"),
            tensor("scale"),
            *_SETTINGS,
            optional_attribute("hp_value_lb", "float?", None),
            optional_attribute("hp_value_ub", "float?", None),
            _DTYPE,
        ),
        doc="torchao 0.13",
    ),
)

WITH_OUTPUT = "torchao.PrototypeFloat8TensorWithOutput"

_PROTOTYPE_FIELDS = (
    tensor("qdata", *_CODES),
    tensor("scale"),
    optional_tensor("act_quant_scale", doc="makes the activation's quantization static"),
    *_SETTINGS,
    _DTYPE,
    optional_tensor("output_act_quant_scale"),
    optional_attribute("output_act_quant_kwargs", _KWARGS, None),
)

SCHEMAS = (
    Schema(
        type="torchao.PrototypeFloat8Tensor",
        version=1,
        fields=_PROTOTYPE_FIELDS,
        doc="torchao 0.16 and later; the output of the layer stays as it is",
    ),
    Schema(
        type=WITH_OUTPUT,
        version=1,
        fields=_PROTOTYPE_FIELDS,
        doc="torchao 0.16 and later; the layer's output is quantized as well",
    ),
    Schema(
        type="torchao.FbgemmFp8Tensor",
        version=1,
        fields=(
            tensor("float8_data", "float8_e4m3fn", shape=("...", "N", "K")),
            tensor("scale", "float32", shape=("...", "N")),
            tensor("activation_scale_ub", "float32", shape=("1",), doc="bound of |x|"),
        ),
        doc="torchao 0.12 and 0.13: a scale a row, the activation's rows quantized as well",
    ),
)


def _quantizes_output(raw: Record) -> bool:
    given = raw.attributes.get("output_act_quant_kwargs")
    return given is not None or "output_act_quant_scale" in raw.parts


CLASSES = (
    PickledType(
        type="torchao.Float8Tensor",
        paths=("torchao.quantization.Float8Tensor", f"{_WORKFLOWS}.float8_tensor.Float8Tensor"),
        forms=(
            Form(version=1, releases="0.13", has=("qdata", "hp_value_lb", "hp_value_ub")),
            Form(
                version=2,
                releases="0.14 and later",
                has=("qdata",),
                lacks=("hp_value_lb", "hp_value_ub"),
            ),
        ),
    ),
    PickledType(
        type="torchao.PrototypeFloat8Tensor",
        paths=(
            "torchao.quantization.PrototypeFloat8Tensor",  # 0.16
            f"{_STATIC}.prototype_float8_tensor.PrototypeFloat8Tensor",
        ),
        forms=(
            Form(
                version=1,
                releases="0.16 and later",
                has=("qdata",),
                test=lambda raw: not _quantizes_output(raw),
            ),
            Form(
                version=1,
                type=WITH_OUTPUT,
                releases="0.16 and later",
                has=("qdata",),
                test=_quantizes_output,
                note="the output is quantized",
            ),
        ),
    ),
    PickledType(
        type="torchao.FbgemmFp8Tensor",
        paths=("torchao.dtypes.fbgemm_fp8_tensor.FbgemmFp8Tensor",),
        forms=(Form(version=1, releases="0.12 and 0.13", has=("float8_data",)),),
    ),
)

OBJECTS = (
    PickledObject(
        type="torchao.QuantizeTensorToFloat8Kwargs",
        paths=(f"{_WORKFLOWS}.float8_tensor.QuantizeTensorToFloat8Kwargs",),
    ),
)
