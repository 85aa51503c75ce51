"""Every torchao class that is found in pickles: one table, put together from a file a family."""

from __future__ import annotations

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
)

OBJECTS: tuple[PickledObject, ...] = (
    *(
        PickledObject(
            type=f"torchao.{name}",
            paths=(
                f"torchao.quantization.granularity.{name}",
                f"torchao.quantization.observer.{name}",
            ),
        )
        for name in ("PerTensor", "PerRow", "PerToken", "PerAxis", "PerGroup", "PerBlock")
    ),
    PickledObject(
        type="torchao.Float8MMConfig",
        paths=("torchao.float8.inference.Float8MMConfig",),
        positional=("emulate", "use_fast_accum", "pad_inner_dim"),
    ),
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
)

ENUMS: tuple[PickledEnum, ...] = (
    PickledEnum(
        type="torchao.KernelPreference",
        paths=("torchao.quantization.quantize_.common.kernel_preference.KernelPreference",),
        members={
            value: value.upper()
            for value in (
                *("auto", "torch", "fbgemm", "emulated", "mslk", "triton", "deepgemm", "cutedsl"),
            )
        },
    ),
    PickledEnum(
        type="torchao.MappingType",
        paths=("torchao.quantization.quant_primitives.MappingType",),
        members={"1": "SYMMETRIC", "2": "SYMMETRIC_NO_CLIPPING_ERR", "3": "ASYMMETRIC"},
    ),
)
