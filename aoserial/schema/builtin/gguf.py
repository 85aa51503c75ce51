"""Declaration of `aoserial.GGUFTensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS, block_size
from aoserial.schema.fields import attribute, tensor
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import BLOCKS

_SUPERBLOCKS = ("...", "N", "K/superblock_size")

GGUF_TENSOR = Schema(
    type="aoserial.GGUFTensor",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("qdata", *FLOATS, "uint8", shape=("...", "N", "K"), doc="one code 0 to 15 each"),
        tensor("scale", *FLOATS, "uint8", shape=BLOCKS, doc="codes 0 to 63"),
        tensor("offset", *FLOATS, "uint8", shape=BLOCKS, doc="codes 0 to 63"),
        tensor("super_scale", *FLOATS, shape=_SUPERBLOCKS, doc="multiplies the scales"),
        tensor("super_offset", *FLOATS, shape=_SUPERBLOCKS, doc="multiplies the offsets"),
        block_size(),
        attribute("superblock_size", "int", doc="columns that share a scale of scales"),
    ),
    doc="The arithmetic of GGUF's Q4_K: w = qdata * (super_scale * scale) + super_offset * offset.",
)
