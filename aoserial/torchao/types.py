"""torchao's tensor types, registered, and which of them its files of safetensors hold. Torch-free.

torchao versions nothing, so the versions are ours: one for each form of a type's fields that a
reader cannot take for the next by filling in optional ones. Sources are torchao's class bodies; the
releases in which a form or field was written stand beside it, in a file a family.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aoserial.schema import REGISTRY, Schema, Value
from aoserial.schema.registry import builtin_documents
from aoserial.storage import Shape
from aoserial.torchao import (
    affine,
    firstborn,
    flat,
    float8,
    int4,
    integers,
    mx,
    nvfp4,
    opaque,
    prototypes,
    training,
    uintx,
    wrappers,
)
from aoserial.torchao.objects import ENUMS, OBJECTS
from aoserial.torchao.wrapping import INNER

OWNER = "aoserial.torchao"

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
        Written(float8.FLOAT8_TENSOR, _shape_of_codes, "dtype"),
        Written(integers.INT8_TENSOR, _shape_of_codes, "dtype", since="0.16"),
        Written(int4.INT4_TENSOR, _shape_attribute, "scale"),
        Written(int4.INT4_TILE_PACKED_TENSOR, _shape_attribute, "scale_and_zero"),
        Written(int4.INT4_PLAIN_INT32_TENSOR, _shape_attribute, "scale", since="0.16"),
        Written(integers.INTX_TENSOR, _shape_of_codes, "dtype"),
        Written(mx.MX_TENSOR, _shape_of_mx, "orig_dtype", since="0.17"),
        Written(nvfp4.NVFP4_TENSOR, _shape_of_packed_codes, "orig_dtype", since="0.17"),
    )
}

# earlier forms of the same types, which were only ever pickled
_OLDER = (
    *float8.OLDER,
    *mx.OLDER,
    *nvfp4.OLDER,
    *affine.OLDER,
    *wrappers.OLDER,
)

for _enum in (
    *ENUMS,
    *mx.ENUM_SCHEMAS,
    *nvfp4.ENUM_SCHEMAS,
    *opaque.ENUM_SCHEMAS,
    *affine.ENUM_SCHEMAS,
):
    REGISTRY.add_enum(_enum)
for _schema in (
    *OBJECTS,
    *mx.OBJECT_SCHEMAS,
    INNER,
    *affine.OBJECT_SCHEMAS,
    *wrappers.OBJECT_SCHEMAS,
    *(written.schema for written in WRITTEN.values()),
    *float8.SCHEMAS,
    *int4.SCHEMAS,
    *integers.SCHEMAS,
    *opaque.SCHEMAS,
    *firstborn.SCHEMAS,
    *flat.SCHEMAS,
    *prototypes.SCHEMAS,
    *training.SCHEMAS,
    *uintx.SCHEMAS,
    *affine.SCHEMAS,
    *wrappers.SCHEMAS,
):
    _older = tuple(schema for schema in _OLDER if schema.type == _schema.type)
    REGISTRY.add(_schema, owner=OWNER, frozen=builtin_documents(), older=_older)
