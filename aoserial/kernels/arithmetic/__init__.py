"""The public arithmetic of quantized weights: what codes mean and how they are made.

Dequantizing is bit for bit that of the torchao releases that each function names, whose order of
operations and roundings is part of the meaning of a file.
"""

from aoserial.kernels.arithmetic.affine import (
    ZERO_DOMAINS,
    dequantize_int4,
    dequantize_int8,
    dequantize_intx,
    quantize_int4,
    quantize_int8,
    quantize_intx,
)
from aoserial.kernels.arithmetic.blocks import block_max, block_min, expand
from aoserial.kernels.arithmetic.blocksparse import densify, sparsify
from aoserial.kernels.arithmetic.codebook import dequantize_codebook
from aoserial.kernels.arithmetic.elements import (
    ELEMENTS,
    FP4,
    Element,
    decode,
    element_of,
    encode,
)
from aoserial.kernels.arithmetic.float8 import (
    FLOAT8_DTYPES,
    cast_float8,
    dequantize_float8,
    dequantize_float8_training,
    quantize_float8,
)
from aoserial.kernels.arithmetic.floatx import dequantize_floatx, quantize_floatx
from aoserial.kernels.arithmetic.gguf import dequantize_gguf
from aoserial.kernels.arithmetic.lookup import look_up, look_up_pairs, scale_flat
from aoserial.kernels.arithmetic.mx import (
    SCALE_MODES,
    dequantize_mx,
    e8m0,
    mx_scale,
    quantize_mx,
    through_mx,
)
from aoserial.kernels.arithmetic.nf4 import NF4_ZERO, dequantize_nf4, quantize_nf4
from aoserial.kernels.arithmetic.nibbles import pack_nibbles, unpack_nibbles
from aoserial.kernels.arithmetic.nvfp4 import (
    NVFP4_BLOCK,
    check_tensor_scale,
    dequantize_nvfp4,
    matrix_scale,
    nvfp4_scale,
    quantize_nvfp4,
    tensor_scale,
    through_nvfp4,
)
from aoserial.kernels.arithmetic.states import dynamic_map, quantize_by_table, quantize_flat_fp8
from aoserial.kernels.arithmetic.tiles import tile, untile

__all__ = [
    "ELEMENTS",
    "FLOAT8_DTYPES",
    "FP4",
    "NF4_ZERO",
    "NVFP4_BLOCK",
    "SCALE_MODES",
    "ZERO_DOMAINS",
    "Element",
    "block_max",
    "block_min",
    "cast_float8",
    "check_tensor_scale",
    "decode",
    "densify",
    "dequantize_codebook",
    "dequantize_float8",
    "dequantize_float8_training",
    "dequantize_floatx",
    "dequantize_gguf",
    "dequantize_int4",
    "dequantize_int8",
    "dequantize_intx",
    "dequantize_mx",
    "dequantize_nf4",
    "dequantize_nvfp4",
    "dynamic_map",
    "e8m0",
    "element_of",
    "encode",
    "expand",
    "look_up",
    "look_up_pairs",
    "matrix_scale",
    "mx_scale",
    "nvfp4_scale",
    "pack_nibbles",
    "quantize_by_table",
    "quantize_flat_fp8",
    "quantize_float8",
    "quantize_floatx",
    "quantize_int4",
    "quantize_int8",
    "quantize_intx",
    "quantize_mx",
    "quantize_nf4",
    "quantize_nvfp4",
    "scale_flat",
    "sparsify",
    "tensor_scale",
    "through_mx",
    "through_nvfp4",
    "tile",
    "unpack_nibbles",
    "untile",
]
