"""Multiplying by quantized weights: backends over plain specs and parts."""

from aoserial.kernels.api import explain, linear
from aoserial.kernels.arithmetic import (
    dequantize_float8,
    dequantize_int8,
    quantize_float8,
    quantize_int8,
)
from aoserial.kernels.reference import Reference, dequantize
from aoserial.kernels.registry import BACKENDS, Backend, Backends
from aoserial.kernels.spec import ActivationSpec, DeviceInfo, HasWeight, Spec, Weight

__all__ = [
    "BACKENDS",
    "ActivationSpec",
    "Backend",
    "Backends",
    "DeviceInfo",
    "HasWeight",
    "Reference",
    "Spec",
    "Weight",
    "dequantize",
    "dequantize_float8",
    "dequantize_int8",
    "explain",
    "linear",
    "quantize_float8",
    "quantize_int8",
]
