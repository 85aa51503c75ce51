"""torchao's own types as it wrote them: fields, attribute objects, enums. Torch-free.

torchao versions nothing, so the versions here are ours: one for each form of a type's fields that a
reader cannot take for the next by filling in optional ones. Sources are torchao's class bodies; the
releases in which a form was written stand beside it.
"""

from __future__ import annotations

from aoserial.schema import (
    REGISTRY,
    EnumSchema,
    Schema,
    Symbol,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.schema.registry import builtin_documents

OWNER = "aoserial.torchao"
_AUTO = Symbol("torchao.KernelPreference", "AUTO")

ENUMS = (
    EnumSchema(
        type="torchao.KernelPreference",
        symbols={
            "AUTO": "0.13 and later",
            "TORCH": "0.13 and later",
            "FBGEMM": "0.13 to 0.15",
            "EMULATED": "0.15 and later",
            "MSLK": "0.16 and later, for FBGEMM",
            "TRITON": "0.18 and later",
            "DEEPGEMM": "after 0.18",
            "CUTEDSL": "after 0.18",
        },
        fallback="AUTO",  # a hint; what a later release adds does not change the weight
    ),
    EnumSchema(
        type="torchao.MappingType",
        symbols={
            "SYMMETRIC": "0.2 and later",
            "SYMMETRIC_NO_CLIPPING_ERR": "0.6 and later",
            "ASYMMETRIC": "0.2 and later",
        },
    ),
)


def _object(name: str, *fields: object, doc: str = "") -> Schema:
    return Schema(type=f"torchao.{name}", version=1, kind="object", fields=fields, doc=doc)  # type: ignore[arg-type]


OBJECTS = (
    _object("PerTensor", doc="one scale for all"),
    _object(
        "PerRow",
        optional_attribute("dim", "int", -1, doc="0.15 and later: the dimension reduced over"),
        doc="one scale for each slice along dim",
    ),
    _object("PerToken", doc="one scale for each row of the last dimension"),
    _object("PerAxis", attribute("axis", "int"), doc="one scale for each index of axis"),
    _object("PerGroup", attribute("group_size", "int"), doc="groups in the last dimension"),
    _object("PerBlock", attribute("block_size", "list[int]"), doc="0.14 and later"),
    _object(
        "Float8MMConfig",
        optional_attribute("emulate", "bool", False),
        optional_attribute("use_fast_accum", "bool", False),
        optional_attribute("pad_inner_dim", "bool", False),
    ),
    _object(
        "QuantizeTensorToFloat8Kwargs",
        optional_attribute("float8_dtype", "dtype", "float8_e4m3fn"),
        attribute("granularity", "any", doc="one of the Per* objects"),
        optional_attribute("mm_config", "object:torchao.Float8MMConfig?", None),
        optional_attribute("hp_value_lb", "float?", None),
        optional_attribute("hp_value_ub", "float?", None),
        optional_attribute("kernel_preference", "enum:torchao.KernelPreference", _AUTO),
    ),
    _object(
        "QuantizeTensorToInt8Kwargs",
        attribute("granularity", "any", doc="one of the Per* objects"),
        optional_attribute(
            "mapping_type",
            "enum:torchao.MappingType",
            Symbol("torchao.MappingType", "SYMMETRIC"),
        ),
        optional_attribute("reduce_range", "bool", False, doc="0.18 and later"),
    ),
)

FLOAT8_TENSOR = Schema(
    type="torchao.Float8Tensor",
    version=2,  # 1 is the form of 0.13, with bounds on the tensor, which was only ever pickled
    fields=(
        tensor("qdata"),
        tensor("scale"),
        optional_attribute("block_size", "list[int]?", None),
        optional_attribute("mm_config", "object:torchao.Float8MMConfig?", None),
        optional_attribute(
            "act_quant_kwargs", "object:torchao.QuantizeTensorToFloat8Kwargs?", None
        ),
        optional_attribute("kernel_preference", "enum:torchao.KernelPreference?", _AUTO),
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

TENSORS = (FLOAT8_TENSOR, INT8_TENSOR)

for _enum in ENUMS:
    REGISTRY.add_enum(_enum)
for _schema in (*OBJECTS, *TENSORS):
    REGISTRY.add(_schema, owner=OWNER, frozen=builtin_documents())
