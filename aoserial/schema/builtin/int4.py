"""Declaration of `aoserial.Int4Tensor`."""

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
from aoserial.schema.fields import attribute, optional_attribute, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

INT4_TENSOR = Schema(
    type="aoserial.Int4Tensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor(
            "qdata",
            "uint8",
            shape=("...", "N", "K/2"),
            doc="codes 0 to 15, two a byte, even k in the low nibble",
        ),
        tensor("scale", *FLOATS, shape=BLOCKS),
        block_size(),
        attribute("zero_domain", "enum:aoserial.ZeroDomain"),
        zero_point(),
        act_pre_scale(),
        group_index(),
        activation(),
        act_pre_scale_op(),
        optional_attribute(
            "narrow_arithmetic",
            "bool",
            False,
            doc="each operation is rounded to the result's dtype, not to float32",
        ),
    ),
    doc="4-bit codes with a scale a block, computed in float32 unless it says otherwise.",
)
