"""Multiplying by quantized weights: backends over plain specs and parts."""

from aoserial.kernels.api import explain, linear
from aoserial.kernels.arithmetic import (
    ELEMENTS,
    NVFP4_BLOCK,
    check_tensor_scale,
    dequantize_float8,
    dequantize_int4,
    dequantize_int8,
    dequantize_intx,
    dequantize_mx,
    dequantize_nvfp4,
    element_of,
    matrix_scale,
    quantize_float8,
    quantize_int4,
    quantize_int8,
    quantize_intx,
    quantize_mx,
    quantize_nvfp4,
)
from aoserial.kernels.reference import Reference, dequantize
from aoserial.kernels.registry import BACKENDS, Backend, Backends
from aoserial.kernels.spec import ActivationSpec, DeviceInfo, HasWeight, Spec, Weight

__all__ = [
    "BACKENDS",
    "ELEMENTS",
    "NVFP4_BLOCK",
    "ActivationSpec",
    "Backend",
    "Backends",
    "DeviceInfo",
    "HasWeight",
    "Reference",
    "Spec",
    "Weight",
    "check_tensor_scale",
    "dequantize",
    "dequantize_float8",
    "dequantize_int4",
    "dequantize_int8",
    "dequantize_intx",
    "dequantize_mx",
    "dequantize_nvfp4",
    "element_of",
    "explain",
    "linear",
    "matrix_scale",
    "quantize_float8",
    "quantize_int4",
    "quantize_int8",
    "quantize_intx",
    "quantize_mx",
    "quantize_nvfp4",
]
