"""Declaration of `aoserial.NF4Tensor`."""

from __future__ import annotations

from aoserial.schema.builtin.domains import FLOATS
from aoserial.schema.fields import attribute, tensor
from aoserial.schema.schema import Schema

NF4_TENSOR = Schema(
    type="aoserial.NF4Tensor",
    version=1,
    dims=("...", "K"),
    fields=(
        tensor(
            "quantized_data",
            "uint8",
            shape=("numel/2",),
            doc="codes of 4 bits, two a byte, the first in the high nibble",
        ),
        tensor("quantized_scalers", "int8", shape=("numel/block_size",), doc="codes of scales"),
        tensor(
            "quantization_factor",
            *FLOATS,
            shape=("numel/block_size/scaler_block_size",),
            doc="what the codes of scales are divided by",
        ),
        tensor("scaler_mean", *FLOATS, shape=(), doc="the mean of the scales"),
        tensor("nf4", *FLOATS, shape=("16",), doc="what the codes stand for"),
        attribute("block_size", "int", doc="elements that share a scale"),
        attribute("scaler_block_size", "int", doc="scales that share a factor"),
    ),
    doc="NF4 as torchao has it: all lies flat, w = nf4[code] * (scaler / factor + mean).",
)
