"""Our settings as torchao 0.18's: how it quantizes activations, and which kernel it runs.

Its `Quantize…Kwargs`, granularities, kernel preferences and what stands in their place: the steps
of `steps/settings`, backwards. What torchao cannot ask for is refused. Torch-free.
"""

from __future__ import annotations

from aoserial.errors import UnsupportedTensorError
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.torchao.steps.settings import GRANULARITIES

# our granularity kind → Per* class, and which of its fields is which of ours
_PER = {
    kind: (theirs, {ours: name for name, ours in fields.items()})
    for theirs, (kind, fields) in GRANULARITIES.items()
}
_FP6 = {"float6_e2m3fn": "fp6_e2m3", "float6_e3m2fn": "fp6_e3m2"}


def float8_kwargs(activation: Value) -> Nested | None:
    """Of Float8Tensor: QuantizeTensorToFloat8Kwargs; None leaves activations as they are."""
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic", mapping="symmetric")
    return _object(
        "QuantizeTensorToFloat8Kwargs",
        float8_dtype=activation["dtype"],
        granularity=_granularity(activation["granularity"]),
        hp_value_lb=activation["lower_bound"],
        hp_value_ub=activation["upper_bound"],
        **kernel_fields(activation["kernel"]),
    )


def int8_kwargs(activation: Value) -> Nested | None:
    """Of Int8Tensor: QuantizeTensorToInt8Kwargs.

    It has no choice of the lowest code and the least scale. Those only move the rounding of an
    activation: torchao itself changed them from its older types to this one, under the same names.
    """
    if not isinstance(activation, Nested):
        return None
    if activation["skip_decode"]:
        raise UnsupportedTensorError("torchao's Int8Tensor quantizes every activation alike")
    return _object(
        "QuantizeTensorToInt8Kwargs",
        granularity=_granularity(activation["granularity"]),
        mapping_type=Symbol("torchao.MappingType", symbol_name(activation["mapping"]).upper()),
        reduce_range=activation["reduce_range"],
    )


def mx_kwargs(activation: Value) -> Nested | None:
    """Of MXTensor: QuantizeTensorToMXKwargs."""
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic")
    hint, dtype, mode = activation["kernel"], str(activation["dtype"]), activation["scale_mode"]
    granularity = activation["granularity"]
    assert isinstance(granularity, Nested)
    return _object(
        "QuantizeTensorToMXKwargs",
        elem_dtype=element_name(dtype),
        block_size=granularity["group_size"],
        scaling_mode=Symbol(
            "torchao.ScaleCalculationMode", "FLOOR" if mode is None else symbol_name(mode).upper()
        ),
        kernel_preference=_preference(hint),
        is_swizzled_scales=isinstance(hint, Nested) and hint["swizzled_scales"] is True,
    )


def nvfp4_kwargs(activation: Value) -> Nested | None:
    """Of NVFP4Tensor: QuantizeTensorToNVFP4Kwargs."""
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic")
    hint, granularity = activation["kernel"], activation["granularity"]
    assert isinstance(granularity, Nested)
    return _object(
        "QuantizeTensorToNVFP4Kwargs",
        block_size=granularity["group_size"],
        is_swizzled_scales=isinstance(hint, Nested) and hint["swizzled_scales"] is True,
        use_triton_kernel=isinstance(hint, Nested) and hint["triton"] is True,
        use_dynamic_per_tensor_scale=activation["tensor_scale"],
    )


def activation_dtype(activation: Value) -> Value:
    """Of Int4Tensor, which has a dtype: that of the quantized activation, or bfloat16."""
    if not isinstance(activation, Nested):
        return "bfloat16"
    _expect(activation, kind="dynamic", mapping="symmetric")
    granularity = activation["granularity"]
    if not isinstance(granularity, Nested) or symbol_name(granularity["kind"]) != "row":
        raise UnsupportedTensorError("torchao's Int4Tensor quantizes activations by rows alone")
    return activation["dtype"]


def int8_per_token(activation: Value) -> str | None:
    """Of IntxUnpackedToInt8Tensor, which has a name for the one way it knows."""
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic", mapping="asymmetric")
    granularity = activation["granularity"]
    if (
        not isinstance(granularity, Nested)
        or symbol_name(granularity["kind"]) != "token"
        or activation["dtype"] != "int8"
    ):
        raise UnsupportedTensorError("torchao's intx type quantizes activations to int8 per token")
    return "int8_asym_per_token"


def kernel_fields(hint: Value) -> dict[str, Value]:
    """The fields of a kernel hint: `kernel_preference` and `mm_config`."""
    matmul = hint["matmul"] if isinstance(hint, Nested) else None
    config = None
    if isinstance(matmul, Nested):
        config = _object(
            "Float8MMConfig",
            emulate=matmul["emulate"],
            use_fast_accum=matmul["fast_accumulation"],
            pad_inner_dim=matmul["pad_inner_dim"],
        )
    return {"kernel_preference": _preference(hint), "mm_config": config}


def element_name(dtype: str) -> str:
    """torchao's name of the element type of a microscaling format."""
    return _FP6.get(dtype, dtype)


def symbol_name(value: Value) -> str:
    """The name of a member of an enum, whose type resolution checked."""
    assert isinstance(value, Symbol)
    return value.name


def _preference(hint: Value) -> Symbol:
    name = symbol_name(hint["preference"]) if isinstance(hint, Nested) else "auto"
    name = "mslk" if name == "fbgemm" else name  # as torchao renamed it in 0.16
    return Symbol("torchao.KernelPreference", name.upper())


def _granularity(given: Value) -> Nested:
    assert isinstance(given, Nested)
    kind, names = _PER[symbol_name(given["kind"])]
    fields = {theirs: given[ours] for ours, theirs in names.items() if given[ours] is not None}
    return Nested(kind, 1, FrozenMap(fields))


def _object(name: str, **fields: Value) -> Nested:
    return Nested(f"torchao.{name}", 1, FrozenMap(fields))


def _expect(activation: Nested, **symbols: str) -> None:
    for name, expected in symbols.items():
        found = symbol_name(activation[name])
        if found != expected:
            raise UnsupportedTensorError(
                f"torchao's counterpart has only {expected} activations, not {found}"
            )
