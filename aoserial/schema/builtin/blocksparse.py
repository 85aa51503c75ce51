"""Declaration of `aoserial.BlockSparseTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS, INTEGERS, activation
from aoserial.schema.fields import optional_attribute, optional_tensor, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

BLOCK_SPARSE_TENSOR = Schema(
    type="aoserial.BlockSparseTensor",
    version=1,
    dims=("N", "K"),
    fields=(
        tensor(
            "row_starts",
            *("int64", "int32"),
            doc="[N/B + 1]: where each row of blocks begins among the blocks, and where all end",
        ),
        tensor("block_columns", "int64", "int32", shape=("Z",), doc="of each block, counted in B"),
        tensor("block_values", *FLOATS, "int8", shape=("Z", "B", "B"), doc="the blocks, by rows"),
        optional_tensor("scale", *FLOATS, shape=BLOCKS, doc="where the values are codes"),
        optional_tensor("zero_point", *INTEGERS, *FLOATS, shape=BLOCKS),
        optional_attribute(
            "block_size", "list[int]?", None, doc="elements that share a scale; there with it"
        ),
        activation(),
    ),
    doc="Compressed rows of square blocks (BSR); what is in no block is zero.",
)
