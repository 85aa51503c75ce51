"""Declaration of `aoserial.Int8Tensor`."""

from __future__ import annotations

from aoserial.schema.fields import attribute, optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

_FLOATS = ("float32", "bfloat16", "float16", "float64")

INT8_TENSOR = Schema(
    type="aoserial.Int8Tensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("qdata", "int8", shape=("...", "N", "K")),
        tensor("scale", *_FLOATS, shape=BLOCKS),
        attribute("block_size", "list[int]", doc="elements that share a scale, by dimension"),
        optional_tensor("zero_point", "int8", "int32", "int64", *_FLOATS, shape=BLOCKS),
        optional_tensor("act_scale", *_FLOATS, doc="scale of a static activation"),
        optional_tensor("act_zero_point", "int8", "int32", "int64", *_FLOATS),
        optional_tensor(
            "act_pre_scale", *_FLOATS, doc="multiplies the activation first (AWQ, SmoothQuant)"
        ),
        optional_attribute("activation", "object:aoserial.Activation?", None),
        optional_attribute("reduce_range", "bool", False, doc="codes use [-64, 63] only"),
    ),
    doc="int8 codes with a scale a block: w = (qdata - zero_point) * scale.",
)
