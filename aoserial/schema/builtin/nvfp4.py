"""Declaration of `aoserial.NVFP4Tensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import activation, block_size, kernel
from aoserial.schema.fields import optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import EnumSchema, Schema
from aoserial.schema.shapes import BLOCKS
from aoserial.schema.values import Symbol

SCALE_OP = EnumSchema(
    type="aoserial.ScaleOp",
    symbols={
        "multiply": "times the scale",
        "divide": "divided by the scale (1 / (1 / x) is not x)",
    },
    doc="How the scale of a whole tensor enters, into those of blocks or into an activation.",
)

NVFP4_TENSOR = Schema(
    type="aoserial.NVFP4Tensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            "uint8",
            shape=("...", "N", "K/2"),
            doc="fp4 e2m1 codes, two a byte, even k in the low nibble",
        ),
        tensor("scale", "float8_e4m3fn", shape=BLOCKS, doc="unswizzled"),
        block_size(),
        optional_tensor("per_tensor_scale", "float32", "bfloat16", doc="second-level scale"),
        optional_tensor("act_per_tensor_scale", "float32", "bfloat16"),
        optional_attribute(
            "per_tensor_scale_op", "enum:aoserial.ScaleOp", Symbol("aoserial.ScaleOp", "multiply")
        ),
        optional_attribute(
            "scale_product_dtype",
            "dtype",
            "float32",
            doc="in which the scales are multiplied: float32 since torchao 0.18, bfloat16 before",
        ),
        activation(),
        kernel(),
    ),
    doc="NVFP4: fp4 codes, an e4m3 scale a block of 16, a scale for the whole tensor.",
)
