"""MXTensor as torchao wrote it, and what is in it. Torch-free."""

from __future__ import annotations

from aoserial.errors import UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import (
    EnumSchema,
    Schema,
    Symbol,
    attribute,
    optional_attribute,
    tensor,
)
from aoserial.torchao.forms import Form, PickledEnum, PickledObject, PickledType

MX_FORMATS = "torchao.prototype.mx_formats"

ENUM_SCHEMAS = (
    EnumSchema(
        type="torchao.MXGemmKernelChoice",
        symbols={"EMULATED": "0.9 to 0.14", "CUTLASS": "0.9 to 0.14", "CUBLAS": "0.9 to 0.14"},
    ),
)
_EMULATED = Symbol("torchao.MXGemmKernelChoice", "EMULATED")

# QuantizeTensorToMXKwargs with kernels of its own: to us another object
MX_KWARGS_0_13 = "torchao.MXKwargsOf0_13"

OBJECT_SCHEMAS = (
    Schema(
        type=MX_KWARGS_0_13,
        version=1,
        kind="object",
        fields=(
            optional_attribute("elem_dtype", "str", "float8_e4m3fn", doc="fp6 by its own names"),
            optional_attribute("block_size", "int", 32),
            optional_attribute(
                "scaling_mode",
                "enum:torchao.ScaleCalculationMode",
                Symbol("torchao.ScaleCalculationMode", "FLOOR"),
            ),
            optional_attribute("gemm_kernel_choice", "enum:torchao.MXGemmKernelChoice", _EMULATED),
            optional_attribute("pack_fp6", "bool", False),
        ),
        doc="QuantizeTensorToMXKwargs of torchao 0.13 and 0.14",
    ),
)

_MX_ELEMENT = (
    attribute("_elem_dtype", "str", doc="a dtype, or fp6_e2m3, fp6_e3m2; fp4_e2m1 up to 0.11"),
    attribute("_orig_dtype", "dtype"),
)

MX_TENSOR = Schema(
    type="torchao.MXTensor",
    version=4,
    fields=(
        tensor("qdata", "uint8", "float8_e4m3fn", "float8_e5m2"),
        tensor("scale", "float8_e8m0fnu", "uint8"),
        attribute("elem_dtype", "str", doc="a dtype, or fp6_e2m3 or fp6_e3m2"),
        attribute("block_size", "int"),
        attribute("orig_dtype", "dtype"),
        attribute("kernel_preference", "enum:torchao.KernelPreference?"),
        attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToMXKwargs?"),
        attribute("is_swizzled_scales", "bool"),
    ),
    doc="torchao 0.16 and later",
)

OLDER = (
    Schema(
        type="torchao.MXTensor",
        version=1,
        fields=(
            tensor("_data", "uint8", "float8_e4m3fn", "float8_e5m2"),
            tensor(
                "_scale_e8m0", "uint8", "float8_e8m0fnu", doc="flat up to 0.11; uint8 up to 0.9"
            ),
            *_MX_ELEMENT,
            attribute("_block_size", "int"),
            optional_attribute(
                "_use_fp4_custom_triton_dequant_kernel", "bool", False, doc="0.9 to 0.12"
            ),
            optional_attribute(
                "_gemm_kernel_choice",
                "enum:torchao.MXGemmKernelChoice?",
                _EMULATED,
                doc="0.9 and later; there was no other before",
            ),
            optional_attribute("_pack_fp6", "bool", False, doc="0.10 and later"),
        ),
        doc="torchao 0.3 to 0.12: even k of fp4 in the high nibble",
    ),
    Schema(
        type="torchao.MXTensor",
        version=2,
        fields=(
            tensor("qdata", "uint8", "float8_e4m3fn", "float8_e5m2"),
            tensor("_scale_e8m0", "float8_e8m0fnu"),
            *_MX_ELEMENT,
            attribute("_block_size", "int"),
            attribute("_gemm_kernel_choice", "enum:torchao.MXGemmKernelChoice?"),
            attribute("_pack_fp6", "bool"),
            attribute("act_quant_kwargs", f"object:{MX_KWARGS_0_13}?"),
        ),
        doc="torchao 0.13 and 0.14: even k of fp4 in the high nibble",
    ),
    Schema(
        type="torchao.MXTensor",
        version=3,
        fields=(
            tensor("qdata", "uint8", "float8_e4m3fn", "float8_e5m2"),
            tensor("scale", "float8_e8m0fnu"),
            *_MX_ELEMENT,
            attribute("block_size", "int"),
            attribute("kernel_preference", "enum:torchao.KernelPreference?"),
            attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToMXKwargs?"),
            attribute("_is_swizzled_scales", "bool"),
        ),
        doc="torchao 0.15",
    ),
)


def form(version: int, releases: str, *has: str) -> Form:
    return Form(version=version, releases=releases, has=has, adapt=_refuse_transposed)


def _refuse_transposed(record: Record) -> Record:
    """These two are the classes whose strides say that their codes lie transposed; flat scales, of
    0.12 and before, do not, and ours has no such weights."""
    if "(stride)" in record.attributes:
        raise UnsupportedTensorError(
            "is the transposed view of a weight, whose scales lie the other way round; save the "
            "weight itself"
        )
    return record


CLASSES = (
    PickledType(
        type="torchao.MXTensor",
        paths=(f"{MX_FORMATS}.mx_tensor.MXTensor",),
        forms=(
            form(1, "0.3 to 0.12", "_data"),
            form(2, "0.13 and 0.14", "qdata", "_scale_e8m0"),
            form(3, "0.15", "scale", "_elem_dtype"),
            form(4, "0.16 and later", "scale", "elem_dtype"),
        ),
    ),
)

OBJECTS = (
    PickledObject(
        type="torchao.QuantizeTensorToMXKwargs",
        paths=(f"{MX_FORMATS}.mx_tensor.QuantizeTensorToMXKwargs",),
        older={"gemm_kernel_choice": MX_KWARGS_0_13},
    ),
)

ENUMS = (
    PickledEnum(
        type="torchao.MXGemmKernelChoice",
        paths=(f"{MX_FORMATS}.config.MXGemmKernelChoice",),
        members={"emulated": "EMULATED", "cutlass": "CUTLASS", "cublas": "CUBLAS"},
    ),
    PickledEnum(
        type="torchao.ScaleCalculationMode",
        paths=(
            f"{MX_FORMATS}.mx_tensor.ScaleCalculationMode",
            f"{MX_FORMATS}.config.ScaleCalculationMode",
        ),
        members={
            # by number in mx_tensor, 0.9 to 0.12
            "1": "FLOOR",
            "2": "CEIL",
            "3": "EVEN",
            "4": "RCEIL",
            "floor": "FLOOR",
            "ceil": "CEIL",
            "even": "EVEN",
            "rceil": "RCEIL",
        },
    ),
)
