"""The forms of AffineQuantizedTensor's fields, by version. Torch-free."""

from __future__ import annotations

from aoserial.schema import (
    Field,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.torchao.affine.impls import IMPLS
from aoserial.torchao.wrapping import SETTINGS

TYPE = "torchao.AffineQuantizedTensor"

_QUANTIZED = (
    attribute("block_size", "list[int]", doc="elements that share a scale, by dimension"),
    attribute("quant_min", "float?", doc="None for the least of the codes' dtype"),
    attribute("quant_max", "float?"),
    attribute(
        "zero_point_domain",
        "enum:torchao.ZeroPointDomain?",
        doc="of float8 None up to 0.8, NONE up to 0.11, INT from 0.12 on; it has no zero point",
    ),
    optional_attribute(
        "kernel_arithmetic",
        "bool",
        False,
        doc="what a step says of tiles of 0.3, which had no arithmetic but the kernel's",
    ),
)


def _held_in(name: str) -> tuple[Field, ...]:
    """The field of the impl, and the tensors of any."""
    tensors = {inner: None for impl in IMPLS for inner in (*impl.tensors, *impl.optional)}
    return (
        attribute(name, "any", doc="the impl"),
        *(optional_tensor(f"{name}.{inner}") for inner in tensors),
    )


def _form(version: int, *fields: Field, doc: str) -> Schema:
    return Schema(type=TYPE, version=version, fields=(*fields, *_QUANTIZED, *SETTINGS), doc=doc)


OLDER = (
    _form(
        1,
        *(tensor("int_data"), tensor("scale"), optional_tensor("zero_point")),
        doc="torchao 0.2: plain",
    ),
    _form(2, *_held_in("layout_tensor"), doc="torchao 0.3: which layout, the class says"),
    _form(3, *_held_in("layout_tensor"), doc="torchao 0.4 to 0.6: with a layout_type"),
    _form(4, *_held_in("tensor_impl"), doc="torchao 0.7 to 0.11: _layout in a tensor_impl"),
)

AFFINE_QUANTIZED_TENSOR = _form(
    5,
    *_held_in("tensor_impl"),
    doc="torchao 0.12 to 0.17: float8 scales of the weight's rank, zero in MarlinSparse",
)

MARLIN_QQQ_TENSOR = Schema(
    type="torchao.MarlinQQQTensor",
    version=1,
    fields=(*_held_in("tensor_impl"), *_QUANTIZED, *SETTINGS),
    doc="torchao 0.7 to 0.15: a scale for each channel",
)

MARLIN_QQQ_GROUPED_TENSOR = Schema(
    type="torchao.MarlinQQQTensorOfGroups",
    version=1,
    fields=(*_held_in("tensor_impl"), *_QUANTIZED, *SETTINGS),
    doc="MarlinQQQTensor of torchao 0.7 to 0.15 with a scale for each group, too",
)

STRETCHED_TENSOR = Schema(
    type="torchao.StretchedAffineQuantizedTensor",
    version=1,
    fields=(*_held_in("tensor_impl"), *_QUANTIZED, *SETTINGS),
    doc="torchao 0.13 (PARQ): zero points between codes, quant_max = 2**(b-1) - 0.5",
)

SCHEMAS = (
    AFFINE_QUANTIZED_TENSOR,
    MARLIN_QQQ_TENSOR,
    MARLIN_QQQ_GROUPED_TENSOR,
    STRETCHED_TENSOR,
)
