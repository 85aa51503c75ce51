"""Declaration of `aoserial.Int8Tensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import (
    FLOATS,
    INTEGERS,
    act_pre_scale,
    act_pre_scale_op,
    activation,
    block_size,
)
from aoserial.schema.fields import optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

INT8_TENSOR = Schema(
    type="aoserial.Int8Tensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("qdata", "int8", shape=("...", "N", "K")),
        tensor("scale", *FLOATS, shape=BLOCKS),
        block_size(),
        optional_tensor("zero_point", *INTEGERS, *FLOATS, shape=BLOCKS),
        optional_tensor("act_scale", *FLOATS, doc="scale of a static activation"),
        optional_tensor("act_zero_point", *INTEGERS, *FLOATS),
        act_pre_scale(),
        activation(),
        act_pre_scale_op(),
        optional_attribute("reduce_range", "bool", False, doc="codes use [-64, 63] only"),
    ),
    doc="int8 codes with a scale a block: w = (qdata - zero_point) * scale.",
)
