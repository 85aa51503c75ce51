"""Declaration of `aoserial.Float8Tensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import activation, block_size, kernel
from aoserial.schema.fields import optional_tensor, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

FLOAT8_TENSOR = Schema(
    type="aoserial.Float8Tensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            "float8_e4m3fn",
            "float8_e5m2",
            "float8_e4m3fnuz",
            "float8_e5m2fnuz",
            shape=("...", "N", "K"),
        ),
        tensor("scale", "float32", "bfloat16", "float16", shape=BLOCKS),
        block_size(),
        optional_tensor(
            "act_scale", "float32", "bfloat16", "float16", doc="scale of a static activation"
        ),
        activation(),
        kernel(),
    ),
    doc="fp8 codes with a scale a block: w = qdata * scale.",
)
