"""What the zero point of an affine format means, and the fields that several formats share."""

from __future__ import annotations

from aoserial.schema.fields import Field, attribute, optional_attribute, optional_tensor
from aoserial.schema.schema import EnumSchema
from aoserial.schema.shapes import BLOCKS
from aoserial.schema.values import Symbol

FLOATS = ("float32", "bfloat16", "float16", "float64")
INTEGERS = ("int8", "uint8", "int16", "int32", "int64")

ZERO_DOMAIN = EnumSchema(
    type="aoserial.ZeroDomain",
    symbols={
        "none": "no zero point: w = (q - mid) * s, mid the middle code (8 of 0 to 15, 0 if signed)",
        "int": "in codes: w = (q - z) * s; z may be fractional",
        "float": "in weights, from the middle code: w = (q - mid) * s + z",
        "offset": "in weights, from code 0: w = q * s + z",
    },
    doc="What a zero point is subtracted from or added to.",
)


def block_size() -> Field:
    """One length a dimension; a format whose scale is flat or optional declares its own."""
    return attribute("block_size", "list[int]", doc="elements that share a scale, by dimension")


def activation() -> Field:
    """How the activation is quantized; None where it stays as it is."""
    return optional_attribute("activation", "object:aoserial.Activation?", None)


def kernel() -> Field:
    """What the writer would have run, where it said so."""
    return optional_attribute("kernel", "object:aoserial.KernelHint?", None)


def zero_point() -> Field:
    """One for each block, where the domain has any."""
    return optional_tensor(
        "zero_point",
        *FLOATS,
        *INTEGERS,
        shape=BLOCKS,
        when=("zero_domain", ("int", "float", "offset")),
    )


def group_index() -> Field:
    """The group of each k, for weights quantized in another order of columns (act-order)."""
    return optional_tensor("group_index", "int32", "int64", shape=("K",), doc="group of each k")


def act_pre_scale() -> Field:
    """Without a rule: [K] as AWQ and SmoothQuant write it, or one number for all k."""
    return optional_tensor(
        "act_pre_scale",
        *FLOATS,
        doc="scales the activation first (AWQ, SmoothQuant)",
    )


def act_pre_scale_op() -> Field:
    """1 / x is not exact, so a scale that was divided by stays what it was."""
    return optional_attribute(
        "act_pre_scale_op",
        "enum:aoserial.ScaleOp",
        Symbol("aoserial.ScaleOp", "multiply"),
        doc="how act_pre_scale enters; the wrapper of torchao 0.6 to 0.17 divides",
    )
