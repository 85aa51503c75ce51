"""From torchao's types to ours: the step that leaves each type's own line. Torch-free.

Every step here only renames parts and re-describes attributes, so a file is migrated by writing a
new header.
"""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value

# torchao name → ours; members of KernelPreference that later releases renamed keep their old name
_MAPPING = {
    "SYMMETRIC": "symmetric",
    "SYMMETRIC_NO_CLIPPING_ERR": "symmetric_no_clipping_err",
    "ASYMMETRIC": "asymmetric",
}
# Per* class → our granularity kind, and which of its fields is which of ours
_GRANULARITY: dict[str, tuple[str, dict[str, str]]] = {
    "torchao.PerTensor": ("tensor", {}),
    "torchao.PerRow": ("row", {"dim": "dim"}),
    "torchao.PerToken": ("token", {}),
    "torchao.PerAxis": ("axis", {"axis": "dim"}),
    "torchao.PerGroup": ("group", {"group_size": "group_size"}),
    "torchao.PerBlock": ("block", {"block_size": "block_size"}),
}


@migration("torchao.Float8Tensor", 2, 1, becomes="aoserial.Float8Tensor")
def leave_torchao_float8(record: Record) -> Record:
    """Float8Tensor of torchao 0.14 to 0.18: same bytes, settings gathered in two objects.

    An empty block_size means one block (torchao 0.14 float8_tensor.py, class docstring).
    Proved by fixtures/torchao-0.15.0/float8da_float8w_perrow_v2.
    """
    given = record.attributes
    block_size = given["block_size"]
    if block_size is None:
        raise FieldError("block_size is not recorded, so what the scale spans is unknown").locate(
            field="block_size"
        )
    scale = record.parts["scale"]
    if block_size == () or scale.shape == ():
        block_size = record.shape
        scale = scale.view(scale.dtype, (1,) * len(record.shape))
    return (
        record.at(1, type="aoserial.Float8Tensor")
        .drop("mm_config", "act_quant_kwargs", "kernel_preference", "dtype")
        .put(scale=scale)
        .set(
            block_size=block_size,
            activation=_float8_activation(given["act_quant_kwargs"]),
            kernel=_kernel_hint(given["kernel_preference"], given["mm_config"]),
        )
    )


@migration("torchao.Int8Tensor", 1, 1, becomes="aoserial.Int8Tensor")
def leave_torchao_int8(record: Record) -> Record:
    """Int8Tensor of torchao 0.15 to 0.18: same bytes, activation settings in one object.

    A zero point that is all zeros is kept: values do not decide what a file holds.
    Proved by fixtures/torchao-0.18.0/int8static_int8w_perrow.
    """
    given = record.attributes
    names = {"act_quant_scale": "act_scale", "act_quant_zero_point": "act_zero_point"}
    return (
        record.at(1, type="aoserial.Int8Tensor")
        .drop("act_quant_kwargs", "dtype")
        .rename(**{old: new for old, new in names.items() if old in record.parts})
        .set(
            activation=_int8_activation(given["act_quant_kwargs"], record),
            reduce_range=bool(given["reduce_range"]),
        )
    )


def _float8_activation(kwargs: Value) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    return _activation(
        kind="dynamic",
        dtype=kwargs["float8_dtype"],
        granularity=_granularity(kwargs["granularity"]),
        lower_bound=kwargs["hp_value_lb"],
        upper_bound=kwargs["hp_value_ub"],
        kernel=_kernel_hint(kwargs["kernel_preference"], kwargs["mm_config"]),
    )


def _int8_activation(kwargs: Value, record: Record) -> Nested | None:
    if not isinstance(kwargs, Nested):
        return None
    mapping = kwargs["mapping_type"]
    assert isinstance(mapping, Symbol)  # resolution checked the field's type
    return _activation(
        kind="static" if "act_quant_scale" in record.parts else "dynamic",
        dtype="int8",
        granularity=_granularity(kwargs["granularity"]),
        mapping=Symbol("aoserial.Mapping", _MAPPING[mapping.name]),
        reduce_range=kwargs["reduce_range"],
    )


def _activation(*, kind: str, **fields: Value) -> Nested:
    symbol = Symbol("aoserial.ActivationKind", kind)
    return Nested("aoserial.Activation", 1, FrozenMap(kind=symbol, **fields))


def _granularity(given: Value) -> Nested:
    if not isinstance(given, Nested) or given.type not in _GRANULARITY:
        raise FieldError(f"{given!r:.80} is no granularity of torchao").locate(field="granularity")
    kind, names = _GRANULARITY[given.type]
    fields = {ours: given[theirs] for theirs, ours in names.items()}
    symbol = Symbol("aoserial.GranularityKind", kind)
    return Nested("aoserial.Granularity", 1, FrozenMap(fields, kind=symbol))


def _kernel_hint(preference: Value, matmul: Value) -> Nested | None:
    """None when torchao said nothing beyond its defaults (AUTO, no config)."""
    name = preference.name.lower() if isinstance(preference, Symbol) else "auto"
    if name == "auto" and matmul is None:
        return None
    hint = None
    if isinstance(matmul, Nested):
        hint = Nested(
            "aoserial.MatmulHint",
            1,
            FrozenMap(
                emulate=matmul["emulate"],
                fast_accumulation=matmul["use_fast_accum"],
                pad_inner_dim=matmul["pad_inner_dim"],
            ),
        )
    symbol = Symbol("aoserial.KernelPreference", name)
    return Nested("aoserial.KernelHint", 1, FrozenMap(preference=symbol, matmul=hint))
