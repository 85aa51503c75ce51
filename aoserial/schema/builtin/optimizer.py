"""Declarations of the states of low-bit optimizers."""

from __future__ import annotations

from aoserial.schema.fields import Field, attribute, optional_attribute, tensor
from aoserial.schema.schema import Schema

_BLOCK_SIZE = attribute("block_size", "int", doc="elements, in their order, that share a scale")
_SCALE = tensor("scale", "float32", shape=("numel/block_size",))
_SHOWN_DTYPE = optional_attribute(
    "shown_dtype",
    "dtype?",
    None,
    doc="the dtype that torchao 0.17 and later shows, for values that are float32",
)


def _by_table(bits: int, codes: Field) -> Schema:
    return Schema(
        type=f"aoserial.OptimState{bits}bit",
        version=1,
        dims=("...", "K"),
        fields=(
            codes,
            _SCALE,
            tensor("qmap", "float32", shape=(str(2**bits),), doc="what the codes stand for"),
            attribute("signed", "bool", doc="whether qmap has negative values"),
            _BLOCK_SIZE,
            _SHOWN_DTYPE,
        ),
        doc=f"The state of an optimizer as codes of {bits} bits: qmap[code] * scale.",
    )


OPTIM_STATE_8BIT = _by_table(8, tensor("codes", "uint8", shape=("...", "K")))
OPTIM_STATE_4BIT = _by_table(
    4,
    tensor(
        "codes", "uint8", shape=("numel/2",), doc="flat, two a byte, the first in the high nibble"
    ),
)
OPTIM_STATE_FP8 = Schema(
    type="aoserial.OptimStateFp8",
    version=1,
    dims=("...", "K"),
    fields=(
        tensor("codes", "float8_e4m3fn", shape=("...", "K")),
        _SCALE,
        _BLOCK_SIZE,
        _SHOWN_DTYPE,
    ),
    doc="The state of an optimizer as fp8 codes: code * scale.",
)
