"""torchao's settings as ours: granularities, activation quantization, kernel hints. Torch-free."""

from __future__ import annotations

from aoserial.errors import FieldError
from aoserial.schema import FrozenMap, Nested, Symbol, Value

# Per* class → our granularity kind, and which of its fields is which of ours
GRANULARITIES: dict[str, tuple[str, dict[str, str]]] = {
    "torchao.PerTensor": ("tensor", {}),
    "torchao.PerRow": ("row", {"dim": "dim"}),
    "torchao.PerToken": ("token", {}),
    "torchao.PerAxis": ("axis", {"axis": "dim"}),
    "torchao.PerGroup": ("group", {"group_size": "group_size"}),
    "torchao.PerBlock": ("block", {"block_size": "block_size"}),
}


def activation(*, kind: str, **fields: Value) -> Nested:
    """Our activation object; `kind` is `dynamic` or `static`."""
    symbol = Symbol("aoserial.ActivationKind", kind)
    return Nested("aoserial.Activation", 1, FrozenMap(kind=symbol, **fields))


def granularity_of(given: Value) -> Nested:
    """Our granularity of one of torchao's Per* objects."""
    if not isinstance(given, Nested) or given.type not in GRANULARITIES:
        raise FieldError(f"{given!r:.80} is no granularity of torchao").locate(field="granularity")
    kind, names = GRANULARITIES[given.type]
    return granularity(kind, **{ours: given[theirs] for theirs, ours in names.items()})


def granularity(kind: str, **fields: Value) -> Nested:
    """Our granularity object."""
    symbol = Symbol("aoserial.GranularityKind", kind)
    return Nested("aoserial.Granularity", 1, FrozenMap(fields, kind=symbol))


def mapping(name: str) -> Symbol:
    return Symbol("aoserial.Mapping", name)


def translate(symbol: Value, enum: str) -> Symbol:
    """A member of one of torchao's enums as ours, which has the same name in lower case."""
    assert isinstance(symbol, Symbol)  # resolution checked the field's type
    return Symbol(enum, symbol.name.lower())


def kernel_hint(
    preference: Value, matmul: Value = None, *, default: str = "AUTO", **flags: bool
) -> Nested | None:
    """Our kernel hint; None when torchao said nothing beyond its defaults.

    Args:
        preference: a member of KernelPreference, or None.
        matmul: a Float8MMConfig, or None.
        default: the member that says nothing.
        flags: further fields of the hint, which say something when true.
    """
    name = preference.name if isinstance(preference, Symbol) else default
    if name == default and matmul is None and not any(flags.values()):
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
    symbol = Symbol("aoserial.KernelPreference", name.lower())
    return Nested("aoserial.KernelHint", 1, FrozenMap(preference=symbol, matmul=hint, **flags))
