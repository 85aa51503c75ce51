"""Declaration of `aoserial.IntxTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import (
    FLOATS,
    act_pre_scale,
    act_pre_scale_op,
    activation,
    block_size,
    group_index,
    zero_point,
)
from aoserial.schema.fields import attribute, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

INTX_TENSOR = Schema(
    type="aoserial.IntxTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("qdata", "int8", shape=("...", "N", "K"), doc="one signed code a byte"),
        tensor("scale", *FLOATS, shape=BLOCKS),
        attribute("bit_width", "int", doc="1 to 8: codes are in [-2**(b-1), 2**(b-1) - 1]"),
        block_size(),
        attribute("zero_domain", "enum:aoserial.ZeroDomain"),
        zero_point(),
        act_pre_scale(),
        group_index(),
        activation(),
        act_pre_scale_op(),
    ),
    doc="Codes of 1 to 8 bits with a scale a block, computed in the logical dtype.",
)
