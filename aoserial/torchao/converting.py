"""Our records as torchao 0.18's, for its readers: the steps of `steps/`, backwards.

torchao has fewer kinds of each format than we do. What it has no place for, or could only hold with
other values, is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aoserial.errors import UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import REGISTRY, FrozenMap, Nested, Symbol, Value, resolve
from aoserial.storage import Part, compute
from aoserial.torchao.types import WRITTEN

if TYPE_CHECKING:
    import torch

_GRANULARITY = {
    "tensor": ("torchao.PerTensor", {}),
    "row": ("torchao.PerRow", {"dim": "dim"}),
    "token": ("torchao.PerToken", {}),
    "axis": ("torchao.PerAxis", {"dim": "axis"}),
    "group": ("torchao.PerGroup", {"group_size": "group_size"}),
    "block": ("torchao.PerBlock", {"block_size": "block_size"}),
}
_FP6 = {"float6_e2m3fn": "fp6_e2m3", "float6_e3m2fn": "fp6_e3m2"}


def to_torchao(record: Record) -> Record:
    """A record at the head of one of our types as the one that torchao 0.18 would have written.

    Raises:
        UnsupportedTensorError: torchao has no type that holds the same values and settings.
    """
    convert = _CONVERSIONS.get(record.type)
    if convert is None:
        raise UnsupportedTensorError(f"torchao's safetensors layout has no type for {record.type}")
    schema = REGISTRY[record.type].head
    whole = resolve(
        schema,
        shape=record.shape,
        attributes=record.attributes,
        parts=record.parts,
        registry=REGISTRY,
    )
    return convert(record.set(**whole.attributes))


def _float8(record: Record) -> Record:
    _refuse_parts(record, "act_scale")
    given = record.attributes
    return _become(
        record,
        "Float8Tensor",
        block_size=given["block_size"],
        act_quant_kwargs=_float8_kwargs(given["activation"]),
        dtype=record.dtype,
        **_kernel(given["kernel"]),
    )


def _int8(record: Record) -> Record:
    _refuse_division(record)
    names = {"act_scale": "act_quant_scale", "act_zero_point": "act_quant_zero_point"}
    held = {ours: theirs for ours, theirs in names.items() if ours in record.parts}
    activation = record.attributes["activation"]
    static = isinstance(activation, Nested) and _symbol(activation["kind"]) == "static"
    if static != ("act_scale" in record.parts):
        raise UnsupportedTensorError("torchao tells a static activation by its scale alone")
    return _become(
        record.rename(**held),
        "Int8Tensor",
        block_size=record.attributes["block_size"],
        dtype=record.dtype,
        act_quant_kwargs=_int8_kwargs(activation),
        reduce_range=record.attributes["reduce_range"],
    )


def _int4(record: Record) -> Record:
    """torchao's int4 types, whose arithmetic is the kernel's: narrow_arithmetic has no place."""
    _refuse_parts(record, "group_index")
    _refuse_division(record)
    domain = _symbol(record.attributes["zero_domain"])
    block = record.attributes["block_size"]
    if not isinstance(block, tuple) or any(size != 1 for size in block[:-1]):
        raise UnsupportedTensorError(f"torchao's int4 types have groups in rows, not {block!r}")
    if domain == "int":
        return _int4_plain_int32(record, block)
    if domain == "offset":
        raise UnsupportedTensorError("torchao has no int4 type whose zero is counted from code 0")
    scale, codes = record.parts["scale"], record.parts["qdata"]
    zero = record.parts.get("zero_point")
    if zero is None:
        zero = compute(_zeros_like, scale, dtype=scale.dtype, shape=scale.shape)
    if zero.dtype != scale.dtype or record.dtype != scale.dtype:
        raise UnsupportedTensorError(
            "torchao's Int4Tensor has one dtype for weight, scale and zero"
        )
    signed = compute(_unsigned_to_signed, codes, dtype="int8", shape=codes.shape)
    return _become(
        record.put(qdata=signed, scale=_groups_first(scale), zero_point=_groups_first(zero)),
        "Int4Tensor",
        block_size=block,
        shape=record.shape,
        activation_dtype=_activation_dtype(record.attributes["activation"]),
    )


def _int4_plain_int32(record: Record, block: tuple[Value, ...]) -> Record:
    zero, scale = record.parts["zero_point"], record.parts["scale"]
    if zero.dtype != "int8" or scale.dtype != record.dtype or record.attributes["activation"]:
        raise UnsupportedTensorError(
            "torchao's Int4PlainInt32Tensor has int8 zero points, scales of the weight's dtype and "
            "no activation settings"
        )
    if len(record.shape) != 2 or record.shape[1] % 8:
        raise UnsupportedTensorError("torchao's Int4PlainInt32Tensor is [N, K], K a multiple of 8")
    rows, columns = record.shape
    return _become(
        record.put(
            qdata=record.parts["qdata"].view("int32", (rows, columns // 8)),
            scale=_groups_first(scale),
            zero_point=_groups_first(zero),
        ),
        "Int4PlainInt32Tensor",
        block_size=block,
        shape=record.shape,
    )


def _intx(record: Record) -> Record:
    _refuse_parts(record, "group_index", "act_pre_scale")
    domain = _symbol(record.attributes["zero_domain"])
    scale = record.parts["scale"]
    if domain == "none":
        record = record.put(
            zero_point=compute(_int8_zeros_like, scale, dtype="int8", shape=scale.shape)
        )
    elif domain != "int":
        raise UnsupportedTensorError(f"torchao's intx type has no zero point of domain {domain!r}")
    elif record.parts["zero_point"].dtype in ("int16", "int32", "int64"):
        zero = record.parts["zero_point"]  # codes, which torchao has as int8 alone
        record = record.put(zero_point=compute(_as_int8, zero, dtype="int8", shape=zero.shape))
    return _become(
        record,
        "IntxUnpackedToInt8Tensor",
        target_dtype=f"int{record.attributes['bit_width']}",
        block_size=record.attributes["block_size"],
        dtype=record.dtype,
        activation_quantization=_per_token(record.attributes["activation"]),
    )


def _mx(record: Record) -> Record:
    given = record.attributes
    element = str(given["element"])
    if (given["codes_per_byte"] == 2) != (element == "float4_e2m1fn_x2"):
        raise UnsupportedTensorError("torchao packs fp4 two a byte and nothing else")
    scale = record.parts["scale"]
    kernel = _kernel(given["kernel"])
    return _become(
        record.put(scale=scale.view("float8_e8m0fnu", scale.shape)),
        "MXTensor",
        elem_dtype=_FP6.get(element, element),
        block_size=_row_block(given["block_size"]),
        orig_dtype=record.dtype,
        kernel_preference=kernel["kernel_preference"],
        act_quant_kwargs=_mx_kwargs(given["activation"]),
        is_swizzled_scales=False,
    )


def _nvfp4(record: Record) -> Record:
    given = record.attributes
    if "per_tensor_scale" in record.parts and (
        _symbol(given["per_tensor_scale_op"]) != "multiply"
        or given["scale_product_dtype"] != "float32"
    ):
        raise UnsupportedTensorError("torchao 0.18 multiplies the two scales, in float32")
    kernel = given["kernel"]
    return _become(
        record,
        "NVFP4Tensor",
        block_size=_row_block(given["block_size"]),
        orig_dtype=record.dtype,
        is_swizzled_scales=False,
        use_triton_kernel=isinstance(kernel, Nested) and kernel["triton"] is True,
        act_quant_kwargs=_nvfp4_kwargs(given["activation"]),
    )


_CONVERSIONS: dict[str, Callable[[Record], Record]] = {
    "aoserial.Float8Tensor": _float8,
    "aoserial.Int8Tensor": _int8,
    "aoserial.Int4Tensor": _int4,
    "aoserial.IntxTensor": _intx,
    "aoserial.MXTensor": _mx,
    "aoserial.NVFP4Tensor": _nvfp4,
}
IN_LAYOUT = frozenset(_CONVERSIONS)


def _become(record: Record, kind: str, **attributes: Value) -> Record:
    bare = record.drop(*record.attributes)
    schema = WRITTEN[kind].schema
    return bare.at(schema.version, type=schema.type).set(**attributes)


def _refuse_parts(record: Record, *names: str) -> None:
    for name in names:
        if name in record.parts:
            raise UnsupportedTensorError(f"torchao's counterpart of {record.type} has no {name}")


def _refuse_division(record: Record) -> None:
    op = record.attributes["act_pre_scale_op"]
    if "act_pre_scale" in record.parts and _symbol(op) == "divide":
        raise UnsupportedTensorError("torchao's act_pre_scale multiplies, this one divides")


def _object(name: str, **fields: Value) -> Nested:
    return Nested(f"torchao.{name}", 1, FrozenMap(fields))


def _symbol(value: Value) -> str:
    assert isinstance(value, Symbol)  # the record was resolved
    return value.name


def _preference(hint: Value) -> Symbol:
    name = _symbol(hint["preference"]) if isinstance(hint, Nested) else "auto"
    name = "mslk" if name == "fbgemm" else name  # as torchao renamed it in 0.16
    return Symbol("torchao.KernelPreference", name.upper())


def _kernel(hint: Value) -> dict[str, Value]:
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


def _granularity(given: Value) -> Nested:
    assert isinstance(given, Nested)
    kind, names = _GRANULARITY[_symbol(given["kind"])]
    fields = {theirs: given[ours] for ours, theirs in names.items() if given[ours] is not None}
    return Nested(kind, 1, FrozenMap(fields))


def _float8_kwargs(activation: Value) -> Nested | None:
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic", mapping="symmetric")
    return _object(
        "QuantizeTensorToFloat8Kwargs",
        float8_dtype=activation["dtype"],
        granularity=_granularity(activation["granularity"]),
        hp_value_lb=activation["lower_bound"],
        hp_value_ub=activation["upper_bound"],
        **_kernel(activation["kernel"]),
    )


def _int8_kwargs(activation: Value) -> Nested | None:
    """torchao's int8 settings; its newer type has no choice of the lowest code and least scale.

    Those only move the rounding of an activation: torchao itself changed them from its older types
    to this one, under the same names.
    """
    if not isinstance(activation, Nested):
        return None
    if activation["skip_decode"]:
        raise UnsupportedTensorError("torchao's Int8Tensor quantizes every activation alike")
    return _object(
        "QuantizeTensorToInt8Kwargs",
        granularity=_granularity(activation["granularity"]),
        mapping_type=Symbol("torchao.MappingType", _symbol(activation["mapping"]).upper()),
        reduce_range=activation["reduce_range"],
    )


def _mx_kwargs(activation: Value) -> Nested | None:
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic")
    hint, dtype, mode = activation["kernel"], str(activation["dtype"]), activation["scale_mode"]
    granularity = activation["granularity"]
    assert isinstance(granularity, Nested)
    return _object(
        "QuantizeTensorToMXKwargs",
        elem_dtype=_FP6.get(dtype, dtype),
        block_size=granularity["group_size"],
        scaling_mode=Symbol(
            "torchao.ScaleCalculationMode", "FLOOR" if mode is None else _symbol(mode).upper()
        ),
        kernel_preference=_preference(hint),
        is_swizzled_scales=isinstance(hint, Nested) and hint["swizzled_scales"] is True,
    )


def _nvfp4_kwargs(activation: Value) -> Nested | None:
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


def _activation_dtype(activation: Value) -> Value:
    if not isinstance(activation, Nested):
        return "bfloat16"
    _expect(activation, kind="dynamic", mapping="symmetric")
    granularity = activation["granularity"]
    if not isinstance(granularity, Nested) or _symbol(granularity["kind"]) != "row":
        raise UnsupportedTensorError("torchao's Int4Tensor quantizes activations by rows alone")
    return activation["dtype"]


def _per_token(activation: Value) -> str | None:
    if not isinstance(activation, Nested):
        return None
    _expect(activation, kind="dynamic", mapping="asymmetric")
    granularity = activation["granularity"]
    if (
        not isinstance(granularity, Nested)
        or _symbol(granularity["kind"]) != "token"
        or activation["dtype"] != "int8"
    ):
        raise UnsupportedTensorError("torchao's intx type quantizes activations to int8 per token")
    return "int8_asym_per_token"


def _expect(activation: Nested, **symbols: str) -> None:
    for name, expected in symbols.items():
        found = _symbol(activation[name])
        if found != expected:
            raise UnsupportedTensorError(
                f"torchao's counterpart has only {expected} activations, not {found}"
            )


def _row_block(block: Value) -> int:
    if not isinstance(block, tuple) or any(size != 1 for size in block[:-1]):
        raise UnsupportedTensorError(f"torchao's blocks lie in rows, these are {block!r}")
    size = block[-1]
    assert isinstance(size, int)
    return size


def _groups_first(part: Part) -> Part:
    shape = (*part.shape[:-2], part.shape[-1], part.shape[-2])
    return compute(_transpose, part, dtype=part.dtype, shape=shape)


def _transpose(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(-2, -1).contiguous()


def _unsigned_to_signed(packed: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    return (packed ^ 0x88).view(torch.int8)


def _zeros_like(scale: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    return torch.zeros_like(scale)


def _as_int8(codes: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    narrow = codes.to(torch.int8)
    if not torch.equal(narrow.to(codes.dtype), codes):
        raise UnsupportedTensorError("torchao's intx type has zero points of int8, these are wider")
    return narrow


def _int8_zeros_like(scale: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    return torch.zeros_like(scale, dtype=torch.int8)
