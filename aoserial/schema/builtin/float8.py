"""Declaration of `aoserial.Float8Tensor`."""

from __future__ import annotations

from aoserial.schema.fields import attribute, optional_attribute, optional_tensor, tensor
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
        attribute("block_size", "list[int]", doc="elements that share a scale, by dimension"),
        optional_tensor(
            "act_scale", "float32", "bfloat16", "float16", doc="scale of a static activation"
        ),
        optional_attribute("activation", "object:aoserial.Activation?", None),
        optional_attribute("kernel", "object:aoserial.KernelHint?", None),
    ),
    doc="fp8 codes with a scale a block: w = qdata * scale.",
)
