"""NVFP4Tensor as torchao wrote it, and what is in it. Torch-free."""

from __future__ import annotations

from aoserial.schema import (
    EnumSchema,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.forms import PickledEnum, PickledObject, PickledType
from aoserial.torchao.mx import MX_FORMATS, form

ENUM_SCHEMAS = (
    EnumSchema(
        type="torchao.NVFP4MMConfig",
        symbols={
            "DYNAMIC": "0.12: the activation is quantized too",
            "WEIGHT_ONLY": "0.12: it is not",
        },
    ),
)

_NVFP4_KWARGS = optional_attribute(
    "act_quant_kwargs", "object:torchao.QuantizeTensorToNVFP4Kwargs?", None
)
_SWIZZLED = attribute("_is_swizzled_scales", "bool", doc="without it, a scale's place is unknown")
_TRITON = optional_attribute("use_triton_kernel", "bool?", False)

NVFP4_TENSOR = Schema(
    type="torchao.NVFP4Tensor",
    version=4,
    fields=(
        tensor("qdata", "uint8"),
        tensor("scale", "float8_e4m3fn"),
        attribute("block_size", "int"),
        attribute("orig_dtype", "dtype"),
        optional_tensor("per_tensor_scale"),
        optional_tensor("act_per_tensor_scale"),
        optional_attribute("is_swizzled_scales", "bool?", False),
        optional_attribute("use_triton_kernel", "bool?", False),
        optional_attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToNVFP4Kwargs?", None),
    ),
    doc="torchao 0.16 and later",
)

OLDER = (
    Schema(
        type="torchao.NVFP4Tensor",
        version=1,
        fields=(
            tensor("_data", "uint8"),
            tensor("_scale_e4m3", "float8_e4m3fn"),
            optional_tensor("_per_tensor_scale"),
            attribute("_block_size", "int"),
            attribute("_orig_dtype", "dtype"),
            attribute("mm_config", "enum:torchao.NVFP4MMConfig"),
            _SWIZZLED,
            _TRITON,
        ),
        doc="torchao 0.12: even k in the high nibble",
    ),
    Schema(
        type="torchao.NVFP4Tensor",
        version=2,
        fields=(
            tensor("qdata", "uint8"),
            tensor("_scale_e4m3", "float8_e4m3fn", doc="flat where swizzled, in 0.13"),
            optional_tensor("_per_tensor_scale"),
            optional_tensor("_act_per_tensor_scale"),
            attribute("_block_size", "int"),
            attribute("_orig_dtype", "dtype"),
            _SWIZZLED,
            _TRITON,
            _NVFP4_KWARGS,
        ),
        doc="torchao 0.13 and 0.14: even k in the high nibble",
    ),
    Schema(
        type="torchao.NVFP4Tensor",
        version=3,
        fields=(
            tensor("qdata", "uint8"),
            tensor("scale", "float8_e4m3fn"),
            optional_tensor("per_tensor_scale"),
            optional_tensor("act_per_tensor_scale"),
            attribute("block_size", "int"),
            attribute("_orig_dtype", "dtype"),
            _SWIZZLED,
            _TRITON,
            _NVFP4_KWARGS,
        ),
        doc="torchao 0.15",
    ),
)

CLASSES = (
    PickledType(
        type="torchao.NVFP4Tensor",
        paths=(f"{MX_FORMATS}.nvfp4_tensor.NVFP4Tensor",),
        forms=(
            form(1, "0.12", "_data"),
            form(2, "0.13 and 0.14", "qdata", "_scale_e4m3"),
            form(3, "0.15", "scale", "_orig_dtype"),
            form(4, "0.16 and later", "scale", "orig_dtype"),
        ),
    ),
)

OBJECTS = (
    PickledObject(
        type="torchao.QuantizeTensorToNVFP4Kwargs",
        paths=(f"{MX_FORMATS}.nvfp4_tensor.QuantizeTensorToNVFP4Kwargs",),
    ),
)

ENUMS = (
    PickledEnum(
        type="torchao.NVFP4MMConfig",
        paths=(f"{MX_FORMATS}.nvfp4_tensor.NVFP4MMConfig",),
        members={"dynamic": "DYNAMIC", "weight_only": "WEIGHT_ONLY"},
    ),
)
