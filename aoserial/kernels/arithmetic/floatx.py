"""Floating point of 3 to 7 bits with a scale a block, one code a byte."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.errors import FieldError
from aoserial.kernels.arithmetic.blocks import expand, largest_magnitude
from aoserial.kernels.arithmetic.elements import Element, decode, encode
from aoserial.kernels.arithmetic.slabs import by_slabs


@by_slabs
def dequantize_floatx(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    *,
    exponent_bits: int,
    mantissa_bits: int,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = value of the code · scale, multiplied in float32 and rounded once to `dtype`.

    Args:
        qdata: uint8 [..., N, K]: sign, exponent and mantissa in the low bits. A byte that is no
            code stands for NaN.
        scale: floating point, ceil(shape / block_size).

    Raises:
        FieldError: a format of more than 7 bits, or without an exponent.

    Source: torchao 0.4, `from_scaled_tc_fpx`; 0.5 to 0.15, `dequantize_affine_floatx`.
    """
    form = floatx_element(exponent_bits, mantissa_bits)
    values = decode(qdata, form)
    return (values * expand(scale.to(torch.float32), block_size, qdata.shape)).to(dtype)


@by_slabs
def quantize_floatx(
    w: torch.Tensor, *, exponent_bits: int, mantissa_bits: int, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a weight: scale = max|w| / the largest code, in the dtype of `w`.

    Each value is divided by its scale and rounded to the nearest code, ties to even, saturating. A
    block of zeros, or with a scale too small for its dtype, has scale 1. But for that, codes and
    scales are those of torchao 0.5 to 0.18 (`_choose_qparams_affine_floatx`, of rows).

    Args:
        w: floating point, any shape.

    Returns:
        qdata: uint8, the shape of `w`. scale: the dtype of `w`, ceil(shape / block_size).

    Raises:
        FieldError: a format of more than 7 bits, or without an exponent.
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
    """
    form = floatx_element(exponent_bits, mantissa_bits)
    scale = (largest_magnitude(w, block_size) / form.largest).to(w.dtype)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    wide = expand(scale.to(torch.float32), block_size, w.shape)
    return encode(w.to(torch.float32) / wide, form), scale


def floatx_element(exponent_bits: int, mantissa_bits: int) -> Element:
    """The format with these bits beside its sign.

    Raises:
        FieldError: it has more than 7 in all, or no exponent.
    """
    if exponent_bits < 1 or mantissa_bits < 0 or exponent_bits + mantissa_bits > 6:
        raise FieldError(
            f"{exponent_bits} bits of exponent and {mantissa_bits} of mantissa are no format of "
            f"at most 7 bits"
        )
    return Element(exponent_bits=exponent_bits, mantissa_bits=mantissa_bits)
