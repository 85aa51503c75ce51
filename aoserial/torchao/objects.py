"""Schemas of the enums and attribute objects inside torchao's tensors. Torch-free.

torchao versions nothing; a release that added a field gave it a default, so version 1 of each
covers them all. Enum members appear by name, and releases that had a member stand beside it.
"""

from __future__ import annotations

from aoserial.schema import EnumSchema, Field, Schema, Symbol, attribute, optional_attribute

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
    EnumSchema(
        type="torchao.ScaleCalculationMode",
        symbols={
            "FLOOR": "0.9 and later",
            "CEIL": "0.9 and later",
            "EVEN": "0.9 and later",
            "RCEIL": "0.10 and later",
        },
    ),
    EnumSchema(
        type="torchao.IntxUnpackedToInt8TensorActivationQuantization",
        symbols={"INT8_ASYM_PER_TOKEN": "0.14 and later"},
    ),
)


def _object(name: str, *fields: Field, doc: str = "") -> Schema:
    return Schema(type=f"torchao.{name}", version=1, kind="object", fields=fields, doc=doc)


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
    _object(
        "QuantizeTensorToMXKwargs",
        optional_attribute("elem_dtype", "str", "float8_e4m3fn", doc="fp6 by its own names"),
        optional_attribute("block_size", "int", 32),
        optional_attribute(
            "scaling_mode",
            "enum:torchao.ScaleCalculationMode",
            Symbol("torchao.ScaleCalculationMode", "FLOOR"),
        ),
        optional_attribute(
            "kernel_preference",
            "enum:torchao.KernelPreference",
            Symbol("torchao.KernelPreference", "EMULATED"),
        ),
        optional_attribute("is_swizzled_scales", "bool", False),
    ),
    _object(
        "QuantizeTensorToNVFP4Kwargs",
        optional_attribute("block_size", "int", 16),
        optional_attribute("is_swizzled_scales", "bool", False),
        optional_attribute("use_triton_kernel", "bool", False),
        optional_attribute("use_dynamic_per_tensor_scale", "bool", False, doc="0.14 and later"),
    ),
)
