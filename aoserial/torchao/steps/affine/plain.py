"""Layouts with one code an element: Plain, QDQ and Uintx. Torch-free."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from aoserial.errors import FieldError
from aoserial.record import Record
from aoserial.schema import Nested
from aoserial.storage import Part, compute
from aoserial.storage.dtypes import BY_NAME
from aoserial.torchao.steps.affine.view import Affine, zero_domain
from aoserial.torchao.steps.uintx import unsharded
from aoserial.torchao.wrapping import inside

if TYPE_CHECKING:
    import torch

_RANGES = {"int8": (-128, 127), "uint8": (0, 255), "int32": (-(2**31), 2**31 - 1)}


def read_plain(tensor: Affine) -> Record:
    """PlainAQTTensorImpl: what it becomes goes by the dtype of the codes and their range.

    Codes of the whole range of int8 become an Int8Tensor of the same bytes, of less an IntxTensor;
    codes from 0 on are moved down by half of their range, or, if that is 0 to 15, packed. Whether
    the range ends at -127 or -128 says nothing of the codes' meaning.
    Proved by fixtures/torchao-0.17.0/int8wo_g32_v1, torchao-0.10.0/int8da_int4w,
    torchao-0.5.0/int4wo_plain and torchao-0.7.0/uint4wo_hqq.
    """
    codes = tensor.of_codes("int_data")
    least, greatest = _limits(tensor, codes)
    if (least, greatest) == (0, 15) and tensor.domain != "NONE" and tensor.shape[-1] % 2 == 0:
        return _packed(tensor, codes)
    if codes.dtype == "int8" and _bits(least, greatest) == 8 and tensor.domain != "FLOAT":
        parts = {"qdata": codes, "scale": tensor.of_blocks("scale")}
        if "zero_point" in tensor.parts:
            parts["zero_point"] = _zero_point(tensor)
        return tensor.become("Int8Tensor", parts)
    return _signed(tensor, codes, least, greatest)


def read_qdq(tensor: Affine) -> Record:
    """QDQTensorImpl of torchao 0.9 to 0.16: signed codes one a byte, the weight is dequantized.

    Proved by fixtures/torchao-0.11.0/int3wo_intx and torchao-0.12.0/int4wo_intx_peraxis.
    """
    codes = tensor.of_codes("int_data")
    return _signed(tensor, codes, *_limits(tensor, codes))


def read_uintx(tensor: Affine) -> Record:
    """UintxAQTTensorImpl of torchao 0.5 to 0.17: codes from 0 on, in shards of 4, 2 and 1 bits.

    Proved by fixtures/torchao-0.5.0/uint5wo and torchao-0.15.0/uint4wo_packdim0.
    """
    held = tensor.impl.fields.get("int_data")
    if not isinstance(held, Nested):
        raise FieldError("holds no codes in shards").locate(field="tensor_impl.int_data")
    bits: int = held["bit_width"]  # type: ignore[assignment]  # the object was resolved
    dim: int = held["pack_dim"]  # type: ignore[assignment]
    if held["packed_shape"] != tensor.shape:
        raise FieldError(f"is {held['packed_shape']!r:.60}, expected {tensor.shape}").locate(
            field="packed_shape"
        )
    shards = inside(tensor.parts, "int_data")
    codes = unsharded(shards, bits=bits, shape=tensor.shape, dim=dim)
    least, greatest = tensor.limits((0, (1 << bits) - 1))
    return _signed(tensor, codes, least, greatest)


def _signed(tensor: Affine, codes: Part, least: int, greatest: int) -> Record:
    """An IntxTensor of codes, which are moved down if they begin at 0.

    The middle code, from which a zero point in weights counts, has to be 0 then.
    """
    bits = _bits(least, greatest)
    shift = 2 ** (bits - 1) if least >= 0 else 0
    if tensor.domain == "FLOAT" and least + greatest + 1 != 2 * shift:
        raise FieldError(f"the codes {least} to {greatest} have no middle").locate(
            field="quant_max"
        )
    move = partial(_moved, shift=shift)
    same = codes.dtype == "int8" and not shift
    parts = {
        "qdata": codes
        if same
        else compute(move, codes, dtype="int8", shape=codes.shape, by_rows=1),
        "scale": tensor.of_blocks("scale"),
    }
    domain = {"FLOAT": "float", "NONE": "none"}.get(tensor.domain or "", "int")
    if "zero_point" not in tensor.parts:
        if domain == "int" and shift:
            raise FieldError("is missing, and the codes begin at 0").locate(field="zero_point")
        domain = "none"
    elif domain == "int":
        parts["zero_point"] = _less(_zero_point(tensor), shift)
    else:
        parts["zero_point"] = _zero_point(tensor)
    return tensor.become("IntxTensor", parts, bit_width=bits, zero_domain=zero_domain(domain))


def _packed(tensor: Affine, codes: Part) -> Record:
    """An Int4Tensor of codes 0 to 15, one each, in any dtype.

    A sum with a zero point in weights was rounded at each step; with one in codes there is but
    one rounding, whose result is the same in float32.
    """
    shape = (*codes.shape[:-1], codes.shape[-1] // 2)
    is_float = tensor.domain == "FLOAT"
    return tensor.become(
        "Int4Tensor",
        {
            "qdata": compute(_pack, codes, dtype="uint8", shape=shape, by_rows=1),
            "scale": tensor.of_blocks("scale"),
            "zero_point": _zero_point(tensor),
        },
        zero_domain=zero_domain("float" if is_float else "int"),
        narrow_arithmetic=is_float,
    )


def _limits(tensor: Affine, codes: Part) -> tuple[int, int]:
    if codes.dtype not in _RANGES:
        raise FieldError(f"{codes.dtype} codes are none of {', '.join(_RANGES)}").locate(
            field="tensor_impl.int_data"
        )
    least, greatest = tensor.limits(_RANGES[codes.dtype])
    if not least < greatest <= least + 255:
        raise FieldError(f"are {least} and {greatest}, expected at most 256 codes").locate(
            field="quant_min and quant_max"
        )
    return least, greatest


def _bits(least: int, greatest: int) -> int:
    """The bits that codes need which begin at 0, or of which some are negative."""
    if least >= 0:
        return greatest.bit_length()
    return max((-least - 1).bit_length(), greatest.bit_length()) + 1


def _zero_point(tensor: Affine) -> Part:
    if "zero_point" not in tensor.parts:
        raise FieldError("is missing").locate(field="tensor_impl.zero_point")
    if tensor.domain == "NONE":
        raise FieldError("is there, though the domain is NONE").locate(
            field="tensor_impl.zero_point"
        )
    return tensor.of_blocks("zero_point")


def _less(zero_point: Part, shift: int) -> Part:
    """Zero points moved as the codes are, in their dtype if that can hold what is below 0."""
    if not shift:
        return zero_point
    dtype = "int16" if zero_point.dtype == "uint8" else zero_point.dtype
    assert dtype in BY_NAME
    move = partial(_subtracted, shift=shift, dtype=dtype)
    return compute(move, zero_point, dtype=dtype, shape=zero_point.shape, by_rows=1)


def _subtracted(tensor: torch.Tensor, *, shift: int, dtype: str) -> torch.Tensor:
    from aoserial.storage.dtypes import torch_dtype  # torch-free module

    return tensor.to(torch_dtype(dtype)) - shift


def _moved(codes: torch.Tensor, *, shift: int) -> torch.Tensor:
    import torch  # torch-free module

    return (codes.to(torch.int16) - shift).to(torch.int8)


def _pack(codes: torch.Tensor) -> torch.Tensor:
    import torch  # torch-free module

    narrow = codes.to(torch.uint8)
    return narrow[..., ::2] | narrow[..., 1::2] << 4
