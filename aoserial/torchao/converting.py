"""Our records as torchao 0.18's, for its readers: the steps of `steps/`, backwards. Torch-free.

torchao has fewer kinds of each format than we do. What it has no place for, or could only hold with
other values, is refused. What becomes of settings is in `kwargs`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aoserial.errors import UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import REGISTRY, Nested, Value, resolve
from aoserial.storage import compute
from aoserial.torchao.kwargs import (
    activation_dtype,
    element_name,
    float8_kwargs,
    int8_kwargs,
    int8_per_token,
    kernel_fields,
    mx_kwargs,
    nvfp4_kwargs,
    symbol_name,
)
from aoserial.torchao.steps.int4 import transposed
from aoserial.torchao.types import WRITTEN

if TYPE_CHECKING:
    import torch


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
        act_quant_kwargs=float8_kwargs(given["activation"]),
        dtype=record.dtype,
        **kernel_fields(given["kernel"]),
    )


def _int8(record: Record) -> Record:
    _refuse_division(record)
    names = {"act_scale": "act_quant_scale", "act_zero_point": "act_quant_zero_point"}
    held = {ours: theirs for ours, theirs in names.items() if ours in record.parts}
    activation = record.attributes["activation"]
    static = isinstance(activation, Nested) and symbol_name(activation["kind"]) == "static"
    if static != ("act_scale" in record.parts):
        raise UnsupportedTensorError("torchao tells a static activation by its scale alone")
    return _become(
        record.rename(**held),
        "Int8Tensor",
        block_size=record.attributes["block_size"],
        dtype=record.dtype,
        act_quant_kwargs=int8_kwargs(activation),
        reduce_range=record.attributes["reduce_range"],
    )


def _int4(record: Record) -> Record:
    """torchao's int4 types, whose arithmetic is the kernel's: narrow_arithmetic has no place."""
    _refuse_parts(record, "group_index")
    _refuse_division(record)
    domain = symbol_name(record.attributes["zero_domain"])
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
    signed = compute(_unsigned_to_signed, codes, dtype="int8", shape=codes.shape, by_rows=1)
    return _become(
        record.put(qdata=signed, scale=transposed(scale), zero_point=transposed(zero)),
        "Int4Tensor",
        block_size=block,
        shape=record.shape,
        activation_dtype=activation_dtype(record.attributes["activation"]),
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
            scale=transposed(scale),
            zero_point=transposed(zero),
        ),
        "Int4PlainInt32Tensor",
        block_size=block,
        shape=record.shape,
    )


def _intx(record: Record) -> Record:
    _refuse_parts(record, "group_index", "act_pre_scale")
    domain = symbol_name(record.attributes["zero_domain"])
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
        activation_quantization=int8_per_token(record.attributes["activation"]),
    )


def _mx(record: Record) -> Record:
    given = record.attributes
    element = str(given["element"])
    if (given["codes_per_byte"] == 2) != (element == "float4_e2m1fn_x2"):
        raise UnsupportedTensorError("torchao packs fp4 two a byte and nothing else")
    scale = record.parts["scale"]
    kernel = kernel_fields(given["kernel"])
    return _become(
        record.put(scale=scale.view("float8_e8m0fnu", scale.shape)),
        "MXTensor",
        elem_dtype=element_name(element),
        block_size=_row_block(given["block_size"]),
        orig_dtype=record.dtype,
        kernel_preference=kernel["kernel_preference"],
        act_quant_kwargs=mx_kwargs(given["activation"]),
        is_swizzled_scales=False,
    )


def _nvfp4(record: Record) -> Record:
    given = record.attributes
    if "per_tensor_scale" in record.parts and (
        symbol_name(given["per_tensor_scale_op"]) != "multiply"
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
        act_quant_kwargs=nvfp4_kwargs(given["activation"]),
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
    if "act_pre_scale" in record.parts and symbol_name(op) == "divide":
        raise UnsupportedTensorError("torchao's act_pre_scale multiplies, this one divides")


def _row_block(block: Value) -> int:
    if not isinstance(block, tuple) or any(size != 1 for size in block[:-1]):
        raise UnsupportedTensorError(f"torchao's blocks lie in rows, these are {block!r}")
    size = block[-1]
    assert isinstance(size, int)
    return size


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
