"""Where AffineQuantizedTensor and its like were, and by what their forms are told. Torch-free."""

from __future__ import annotations

from aoserial.record import Record
from aoserial.schema import EnumSchema, FrozenMap, Nested
from aoserial.torchao.affine.impls import BY_TYPE
from aoserial.torchao.affine.layouts import EXPERIMENTAL, OLD, PACKED_LINEAR, PROTOTYPE, UINTX
from aoserial.torchao.affine.schemas import (
    MARLIN_QQQ_GROUPED_TENSOR,
    MARLIN_QQQ_TENSOR,
    STRETCHED_TENSOR,
    TYPE,
)
from aoserial.torchao.forms import Form, PickledEnum, PickledType
from aoserial.torchao.training import plain_value

_DOMAIN = "torchao.ZeroPointDomain"
_DOMAINS_UP_TO_0_3 = {_DOMAIN: {"0": "INT", "1": "FLOAT"}}

ENUM_SCHEMAS = (
    EnumSchema(
        type=_DOMAIN,
        symbols={
            "INT": "in codes: w = (q - z) * s",
            "FLOAT": "in weights, from the middle code: w = (q - mid) * s + z",
            "NONE": "0.7 and later: no zero point",
        },
    ),
    EnumSchema(
        type="torchao.PackedLinearTarget",
        symbols={
            "AUTO": "0.10 and later",
            "UNIVERSAL": "0.10 and later",
            "KLEIDIAI": "0.10 and later",
            "ATEN": "0.9 and later",
            "NATIVE": "up to 0.9",
            "FALLBACK": "0.7 and 0.8",
        },
        doc="Target of torchao.experimental and of PackedLinearInt8DynamicActivationIntxWeight.",
    ),
)

ENUMS = (
    PickledEnum(
        type=_DOMAIN,
        paths=("torchao.quantization.quant_primitives.ZeroPointDomain",),
        members={"1": "INT", "2": "FLOAT", "3": "NONE"},  # 0.4 and later
    ),
    PickledEnum(
        type="torchao.PackedLinearTarget",
        paths=(f"{UINTX}.{PACKED_LINEAR}.Target",),
        members={"1": "AUTO", "2": "UNIVERSAL", "3": "KLEIDIAI", "4": "ATEN"},
    ),
    PickledEnum(
        type="torchao.PackedLinearTarget",
        paths=(f"{EXPERIMENTAL}.{PACKED_LINEAR}.Target",),
        members={"1": "NATIVE", "2": "ATEN"},  # 0.9
    ),
    PickledEnum(
        type="torchao.PackedLinearTarget",
        paths=(f"{EXPERIMENTAL}._linear_8bit_act_xbit_weight_layout.Target",),
        members={"1": "NATIVE", "2": "FALLBACK"},
    ),
)


def _impl(raw: Record, field: str) -> FrozenMap:
    held = raw.attributes.get(field)
    return held.fields if isinstance(held, Nested) else FrozenMap()


def _names_its_layout(raw: Record) -> bool:
    return "layout_type" in _impl(raw, "layout_tensor")


def _is_older_than_0_12(raw: Record) -> bool:
    """float8 scales had the rank of what they scale, less the dimensions that share one."""
    if "tensor_impl.float8_data" in raw.parts:
        scale = raw.parts.get("tensor_impl.scale")
        return scale is not None and len(scale.shape) < len(raw.shape)
    return "tensor_impl.meta" in raw.parts and "tensor_impl.zero_point" in raw.parts


def _has_groups(raw: Record) -> bool:
    scales = raw.parts.get("tensor_impl.s_group")
    return scales is not None and 0 not in scales.shape


def _tidied(record: Record) -> Record:
    """An impl without fields that are None because it has no such tensor, gemlite's as pairs."""
    for field in ("layout_tensor", "tensor_impl"):
        held = record.attributes.get(field)
        if isinstance(held, Nested) and held.type in BY_TYPE:
            optional = BY_TYPE[held.type].optional
            kept = {
                name: plain_value(value) if name == "gemlite_kwargs" else value
                for name, value in held.fields.items()
                if value is not None or name not in optional
            }
            record = record.set(**{field: Nested(held.type, held.version, FrozenMap(kept))})
    return record


FORMS = (
    Form(
        version=1,
        type=TYPE,
        releases="0.2",
        has=("int_data", "scale", "block_size"),
        enums=_DOMAINS_UP_TO_0_3,
    ),
    Form(
        version=2,
        type=TYPE,
        releases="0.3",
        has=("layout_tensor",),
        test=lambda raw: not _names_its_layout(raw),
        note="without layout_type",
        enums=_DOMAINS_UP_TO_0_3,
        adapt=_tidied,
    ),
    Form(
        version=3,
        type=TYPE,
        releases="0.4 to 0.6",
        has=("layout_tensor",),
        test=_names_its_layout,
        note="with layout_type",
        adapt=_tidied,
    ),
    Form(
        version=4,
        type=TYPE,
        releases="0.7 to 0.11",
        has=("tensor_impl",),
        test=_is_older_than_0_12,
        note="float8 scales without the dimensions that share one; zero_point in MarlinSparse",
        adapt=_tidied,
    ),
    Form(
        version=5,
        type=TYPE,
        releases="0.12 to 0.17, and of 0.7 to 0.11 what did not change",
        has=("tensor_impl",),
        test=lambda raw: not _is_older_than_0_12(raw),
        note="whatever else has a tensor_impl",
        adapt=_tidied,
    ),
)

CLASSES = (
    PickledType(
        type=STRETCHED_TENSOR.type,
        paths=("torchao.prototype.parq.quant.quant_api.StretchedAffineQuantizedTensor",),
        forms=(Form(version=1, releases="0.13", has=("tensor_impl",), adapt=_tidied),),
    ),
    PickledType(
        type=TYPE,
        paths=(
            "torchao.quantization.subclass.AffineQuantizedTensor",  # 0.2
            f"{OLD}.AffineQuantizedTensor",
            "torchao.dtypes.AffineQuantizedTensor",
            # the same with linear layers of their own
            f"{EXPERIMENTAL}.{PACKED_LINEAR}.PackedLinearInt8DynamicActivationIntxWeightAtenTensor",
            f"{UINTX}.{PACKED_LINEAR}._AffineQuantizedTensor",
        ),
        forms=FORMS,
    ),
    PickledType(
        type=MARLIN_QQQ_TENSOR.type,
        paths=(
            f"{OLD}.MarlinQQQTensor",  # 0.7
            f"{UINTX}.marlin_qqq_tensor.MarlinQQQTensor",
            f"{PROTOTYPE}.uintx.marlin_qqq_tensor.MarlinQQQTensor",
        ),
        forms=(
            Form(
                version=1,
                releases="0.7 to 0.15, scales of channels",
                has=("tensor_impl",),
                test=lambda raw: not _has_groups(raw),
                note="s_group is empty",
                adapt=_tidied,
            ),
            Form(
                version=1,
                type=MARLIN_QQQ_GROUPED_TENSOR.type,
                releases="0.7 to 0.15, scales of groups",
                has=("tensor_impl",),
                test=_has_groups,
                note="s_group is not empty",
                adapt=_tidied,
            ),
        ),
    ),
)
