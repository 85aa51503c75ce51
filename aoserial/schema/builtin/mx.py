"""Declaration of `aoserial.MXTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import activation, block_size, kernel
from aoserial.schema.fields import attribute, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

MX_TENSOR = Schema(
    type="aoserial.MXTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            "uint8",
            "float8_e4m3fn",
            "float8_e5m2",
            shape=("...", "N", "K/codes_per_byte"),
            doc="fp8 as its dtype; fp6 one code a byte; fp4 two a byte, even k in the low nibble",
        ),
        tensor("scale", "uint8", shape=BLOCKS, doc="e8m0: 2**(byte - 127), 255 is NaN; unswizzled"),
        attribute(
            "element",
            "dtype",
            doc="float8_e4m3fn, float8_e5m2, float6_e2m3fn, float6_e3m2fn or float4_e2m1fn_x2",
        ),
        attribute("codes_per_byte", "int", doc="2 for packed fp4, else 1"),
        block_size(),
        activation(),
        kernel(),
    ),
    doc="OCP microscaling format: element codes with a power-of-two scale a block.",
)
