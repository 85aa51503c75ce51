"""Every torchao class that is found in pickles: one table, put together from a file a family."""

from __future__ import annotations

from aoserial.torchao import microscaling, settings
from aoserial.torchao.forms import Form, PickledEnum, PickledObject, PickledType

CLASSES: tuple[PickledType, ...] = (
    PickledType(
        type="torchao.Float8Tensor",
        paths=(
            "torchao.quantization.Float8Tensor",
            "torchao.quantization.quantize_.workflows.float8.float8_tensor.Float8Tensor",
        ),
        forms=(Form(version=2, releases="0.14 and later", has=("qdata",), lacks=("hp_value_lb",)),),
    ),
    PickledType(
        type="torchao.Int8Tensor",
        paths=(
            "torchao.quantization.Int8Tensor",
            "torchao.quantization.quantize_.workflows.int8.int8_tensor.Int8Tensor",
        ),
        forms=(Form(version=1, releases="0.15 and later", has=("qdata",)),),
    ),
    *microscaling.CLASSES,
)

OBJECTS: tuple[PickledObject, ...] = (
    PickledObject(
        type="torchao.QuantizeTensorToFloat8Kwargs",
        paths=(
            "torchao.quantization.quantize_.workflows.float8.float8_tensor.QuantizeTensorToFloat8Kwargs",
        ),
    ),
    PickledObject(
        type="torchao.QuantizeTensorToInt8Kwargs",
        paths=(
            "torchao.quantization.quantize_.workflows.int8.int8_tensor.QuantizeTensorToInt8Kwargs",
        ),
    ),
    *settings.OBJECTS,
    *microscaling.OBJECTS,
)

ENUMS: tuple[PickledEnum, ...] = (*settings.ENUMS, *microscaling.ENUMS)
