"""Declaration of `aoserial.UIntTensor`."""

from __future__ import annotations

from aoserial.schema.fields import attribute, optional_attribute, tensor
from aoserial.schema.schema import FLOATING, Schema

UINT_TENSOR = Schema(
    type="aoserial.UIntTensor",
    version=1,
    dims=("...", "K"),
    logical_dtypes=("uint8", *FLOATING),
    fields=(
        tensor("qdata", "uint8", shape=("...", "K"), doc="one code a byte"),
        attribute("bit_width", "int", doc="1 to 8: codes are in [0, 2**b - 1]"),
        optional_attribute(
            "zero_code",
            "int",
            0,
            doc="the code that layers of its writer took as zero: 1 where codes are signs plus 1",
        ),
    ),
    doc="Unsigned integers of 1 to 8 bits, with no scale: they stand for themselves.",
)
