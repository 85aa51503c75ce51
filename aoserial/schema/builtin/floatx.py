"""Declaration of `aoserial.FloatxTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS, block_size
from aoserial.schema.fields import attribute, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

FLOATX_TENSOR = Schema(
    type="aoserial.FloatxTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            "uint8",
            shape=("...", "N", "K"),
            doc="one code a byte: sign, exponent, mantissa from the high bit to the low",
        ),
        tensor("scale", *FLOATS, shape=BLOCKS),
        attribute("exponent_bits", "int"),
        attribute("mantissa_bits", "int"),
        block_size(),
    ),
    doc="Floating point of 3 to 7 bits without infinities and NaN, scaled: w = qdata * scale.",
)
