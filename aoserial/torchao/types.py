"""torchao's tensor types as it wrote them. Torch-free.

torchao versions nothing, so the versions here are ours: one for each form of a type's fields that a
reader cannot take for the next by filling in optional ones. Sources are torchao's class bodies; the
releases in which a form or field was written stand beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aoserial.schema import (
    REGISTRY,
    Schema,
    Symbol,
    Value,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.schema.registry import builtin_documents
from aoserial.storage import Shape
from aoserial.torchao import (
    affine,
    firstborn,
    flat,
    float8,
    integers,
    microscaling,
    opaque,
    prototypes,
    training,
    wrappers,
)
from aoserial.torchao.objects import ENUMS, OBJECTS
from aoserial.torchao.wrapping import INNER

OWNER = "aoserial.torchao"

_INT4_FIELDS = (
    attribute("block_size", "list[int]"),
    attribute("shape", "list[int]"),
    optional_tensor("act_pre_scale", doc="0.14 and later"),
)

FLOAT8_TENSOR = Schema(
    type="torchao.Float8Tensor",
    version=2,  # the earlier one, which was only ever pickled, is in `float8`
    fields=(
        tensor("qdata"),
        tensor("scale"),
        optional_attribute("block_size", "list[int]?", None),
        optional_attribute("mm_config", "object:torchao.Float8MMConfig?", None),
        optional_attribute(
            "act_quant_kwargs", "object:torchao.QuantizeTensorToFloat8Kwargs?", None
        ),
        optional_attribute(
            "kernel_preference",
            "enum:torchao.KernelPreference?",
            Symbol("torchao.KernelPreference", "AUTO"),
        ),
        optional_attribute("dtype", "dtype?", None),
    ),
    doc="torchao 0.14 and later",
)

INT8_TENSOR = Schema(
    type="torchao.Int8Tensor",
    version=1,
    fields=(
        tensor("qdata"),
        tensor("scale"),
        attribute("block_size", "list[int]"),
        attribute("dtype", "dtype"),
        optional_tensor("act_quant_scale", doc="0.16 and later"),
        optional_tensor("act_pre_scale", doc="0.16 and later"),
        optional_tensor("zero_point", doc="0.17 and later"),
        optional_tensor("act_quant_zero_point", doc="0.17 and later"),
        optional_attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToInt8Kwargs?", None),
        optional_attribute("reduce_range", "bool?", False, doc="0.18 and later"),
    ),
    doc="torchao 0.15 and later",
)

INT4_TENSOR = Schema(
    type="torchao.Int4Tensor",
    version=1,
    fields=(
        tensor("qdata", "int8", shape=("...", "N", "K/2")),
        tensor("scale", shape=("...", "G", "N"), doc="groups first"),
        tensor("zero_point", shape=("...", "G", "N"), doc="in weights: w = q * scale + zero"),
        *_INT4_FIELDS,
        optional_attribute("activation_dtype", "dtype?", "bfloat16", doc="0.17 and later"),
    ),
    doc="torchao 0.13 and later: signed codes, two a byte, even k in the low nibble",
)

INT4_TILE_PACKED_TENSOR = Schema(
    type="torchao.Int4TilePackedTo4dTensor",
    version=1,
    fields=(
        tensor("qdata", "int32", shape=("T", "S", "32", "4"), doc="tinygemm's tiles, 8 inner"),
        tensor("scale_and_zero", shape=("G", "P", "2"), doc="padded as qdata is"),
        *_INT4_FIELDS,
    ),
    doc="torchao 0.14 and later: w = (q - 8) * scale + zero",
)

INT4_PLAIN_INT32_TENSOR = Schema(
    type="torchao.Int4PlainInt32Tensor",
    version=1,
    fields=(
        tensor("qdata", "int32", shape=("N", "K/8")),
        tensor("scale", shape=("G", "N"), doc="groups first"),
        tensor("zero_point", shape=("G", "N"), doc="int8 on XPU; floating point on NPU"),
        *_INT4_FIELDS,
    ),
    doc="torchao 0.14 and later: w = (q - zero) * scale on XPU",
)

INTX_TENSOR = Schema(
    type="torchao.IntxUnpackedToInt8Tensor",
    version=1,
    fields=(
        tensor("qdata", "int8"),
        tensor("scale"),
        tensor("zero_point"),
        attribute("target_dtype", "dtype", doc="int1 to int8"),
        attribute("block_size", "list[int]"),
        attribute("dtype", "dtype"),
        attribute("activation_quantization", "any", doc="None, or the enum or its value"),
    ),
    doc="torchao 0.14 and later",
)

MX_TENSOR = Schema(
    type="torchao.MXTensor",
    version=4,  # the earlier ones, which were only ever pickled, are in `microscaling`
    fields=(
        tensor("qdata", "uint8", "float8_e4m3fn", "float8_e5m2"),
        tensor("scale", "float8_e8m0fnu", "uint8"),
        attribute("elem_dtype", "str", doc="a dtype, or fp6_e2m3 or fp6_e3m2"),
        attribute("block_size", "int"),
        attribute("orig_dtype", "dtype"),
        attribute("kernel_preference", "enum:torchao.KernelPreference?"),
        attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToMXKwargs?"),
        attribute("is_swizzled_scales", "bool"),
    ),
    doc="torchao 0.16 and later",
)

NVFP4_TENSOR = Schema(
    type="torchao.NVFP4Tensor",
    version=4,  # the earlier ones, which were only ever pickled, are in `microscaling`
    fields=(
        tensor("qdata", "uint8"),
        tensor("scale", "float8_e4m3fn"),
        attribute("block_size", "int"),
        attribute("orig_dtype", "dtype"),
        optional_tensor("per_tensor_scale"),
        optional_tensor("act_per_tensor_scale"),
        optional_attribute("is_swizzled_scales", "bool?", False),
        optional_attribute("use_triton_kernel", "bool?", False),
        optional_attribute("act_quant_kwargs", "object:torchao.QuantizeTensorToNVFP4Kwargs?", None),
    ),
    doc="torchao 0.16 and later",
)

# -- what a tensor stands for, which no field says outright ------------------------------------

Parts = Mapping[str, tuple[str, Shape]]
Attributes = Mapping[str, Value]


def _shape_attribute(_: Parts, attributes: Attributes) -> Value:
    return attributes.get("shape")


def _shape_of_codes(parts: Parts, _: Attributes) -> Value:
    return parts["qdata"][1] if "qdata" in parts else None


def _shape_of_packed_codes(parts: Parts, _: Attributes) -> Value:
    shape = parts["qdata"][1] if "qdata" in parts else ()
    return (*shape[:-1], 2 * shape[-1]) if shape else None


def _shape_of_mx(parts: Parts, attributes: Attributes) -> Value:
    packed = attributes.get("elem_dtype") == "float4_e2m1fn_x2"
    return (_shape_of_packed_codes if packed else _shape_of_codes)(parts, attributes)


@dataclass(frozen=True, slots=True)
class Written:
    """A type as a safetensors file of torchao has it.

    Attributes:
        schema: of its form there.
        shape: of its parts' dtypes and shapes and its attributes, the logical shape.
        dtype: where the logical dtype is: an attribute, or a part whose dtype it is.
        since: the first release that took the type into the layout, later than it had the type.
    """

    schema: Schema
    shape: Callable[[Parts, Attributes], Value]
    dtype: str
    since: str = "0.14"


# by class name; the layout names no module
WRITTEN: dict[str, Written] = {
    written.schema.type.removeprefix("torchao."): written
    for written in (
        Written(FLOAT8_TENSOR, _shape_of_codes, "dtype"),
        Written(INT8_TENSOR, _shape_of_codes, "dtype", since="0.16"),
        Written(INT4_TENSOR, _shape_attribute, "scale"),
        Written(INT4_TILE_PACKED_TENSOR, _shape_attribute, "scale_and_zero"),
        Written(INT4_PLAIN_INT32_TENSOR, _shape_attribute, "scale", since="0.16"),
        Written(INTX_TENSOR, _shape_of_codes, "dtype"),
        Written(MX_TENSOR, _shape_of_mx, "orig_dtype", since="0.17"),
        Written(NVFP4_TENSOR, _shape_of_packed_codes, "orig_dtype", since="0.17"),
    )
}

# earlier forms of the same types, which were only ever pickled
_OLDER = (
    *float8.FLOAT8_TENSORS,
    *microscaling.MX_TENSORS,
    *microscaling.NVFP4_TENSORS,
    *affine.OLDER,
    *wrappers.OLDER,
)

for _enum in (*ENUMS, *microscaling.ENUM_SCHEMAS, *opaque.ENUM_SCHEMAS, *affine.ENUM_SCHEMAS):
    REGISTRY.add_enum(_enum)
for _schema in (
    *OBJECTS,
    *microscaling.OBJECT_SCHEMAS,
    INNER,
    *affine.OBJECT_SCHEMAS,
    *wrappers.OBJECT_SCHEMAS,
    *(written.schema for written in WRITTEN.values()),
    *float8.SCHEMAS,
    *integers.SCHEMAS,
    *opaque.SCHEMAS,
    *firstborn.SCHEMAS,
    *flat.SCHEMAS,
    *prototypes.SCHEMAS,
    *training.SCHEMAS,
    *affine.SCHEMAS,
    *wrappers.SCHEMAS,
):
    _older = tuple(schema for schema in _OLDER if schema.type == _schema.type)
    REGISTRY.add(_schema, owner=OWNER, frozen=builtin_documents(), older=_older)
