"""torchao's int8 and intx weights as it wrote them, but for AffineQuantizedTensor's. Torch-free."""

from __future__ import annotations

from aoserial.schema import (
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.forms import Form, PickledEnum, PickledObject, PickledType

_PUBLIC = "torchao.quantization"  # the classes' __module__, whatever file they are in
_WORKFLOWS = f"{_PUBLIC}.quantize_.workflows"
_INTX = f"{_WORKFLOWS}.intx"

INT8_TENSOR = Schema(
    type="torchao.Int8Tensor",
    version=1,
    fields=(
        tensor("qdata"),
        tensor("scale"),
        attribute("block_size", "list[int]"),
        attribute("dtype", "dtype"),
        optional_tensor("act_quant_scale", doc="0.16 and later"),
        optional_tensor("act_pre_scale", doc="0.16 and later"),
        optional_tensor("zero_point", doc="0.17 and later"),
        optional_tensor("act_quant_zero_point", doc="0.17 and later"),
        optional_attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToInt8Kwargs?", None),
        optional_attribute("reduce_range", "bool?", False, doc="0.18 and later"),
    ),
    doc="torchao 0.15 and later",
)

INTX_TENSOR = Schema(
    type="torchao.IntxUnpackedToInt8Tensor",
    version=1,
    fields=(
        tensor("qdata", "int8"),
        tensor("scale"),
        tensor("zero_point"),
        attribute("target_dtype", "dtype", doc="int1 to int8"),
        attribute("block_size", "list[int]"),
        attribute("dtype", "dtype"),
        attribute("activation_quantization", "any", doc="None, or the enum or its value"),
    ),
    doc="torchao 0.14 and later",
)

# what was only ever pickled
SCHEMAS = (
    Schema(
        type="torchao.IntxUnpackedTensor",
        version=1,
        fields=(
            tensor("qdata", "int8"),
            tensor("scale"),
            tensor("zero_point"),
            attribute("target_dtype", "dtype", doc="int1 to int8"),
            attribute("block_size", "list[int]"),
        ),
        doc="torchao 0.13",
    ),
)

CLASSES = (
    PickledType(
        type="torchao.Int8Tensor",
        paths=(f"{_PUBLIC}.Int8Tensor", f"{_WORKFLOWS}.int8.int8_tensor.Int8Tensor"),
        forms=(Form(version=1, releases="0.15 and later", has=("qdata", "scale")),),
    ),
    PickledType(
        type="torchao.IntxUnpackedTensor",
        paths=(
            f"{_PUBLIC}.IntxUnpackedTensor",
            f"{_INTX}.intx_unpacked_tensor.IntxUnpackedTensor",
        ),
        forms=(Form(version=1, releases="0.13", has=("qdata", "target_dtype")),),
    ),
    PickledType(
        type="torchao.IntxUnpackedToInt8Tensor",
        paths=(
            f"{_PUBLIC}.IntxUnpackedToInt8Tensor",
            f"{_INTX}.intx_unpacked_to_int8_tensor.IntxUnpackedToInt8Tensor",
        ),
        forms=(Form(version=1, releases="0.14 and later", has=("qdata", "target_dtype")),),
    ),
)

OBJECTS = (
    PickledObject(
        type="torchao.QuantizeTensorToInt8Kwargs",
        paths=(f"{_WORKFLOWS}.int8.int8_tensor.QuantizeTensorToInt8Kwargs",),
    ),
)

ENUMS = (
    PickledEnum(
        type="torchao.IntxUnpackedToInt8TensorActivationQuantization",
        paths=(
            f"{_INTX}.intx_unpacked_to_int8_tensor.IntxUnpackedToInt8TensorActivationQuantization",
        ),
        members={"int8_asym_per_token": "INT8_ASYM_PER_TOKEN"},
    ),
)
