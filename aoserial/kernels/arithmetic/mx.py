"""Microscaling formats: small elements with a power-of-two scale a block.

Source: OCP Microscaling Formats (MX) Specification 1.0; torchao 0.18, `to_mx` and `to_dtype`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels.arithmetic.blocks import block_max, largest_magnitude, times
from aoserial.kernels.arithmetic.elements import Element, decode, element_of, encode
from aoserial.kernels.arithmetic.nibbles import pack_nibbles, unpack_nibbles
from aoserial.kernels.arithmetic.slabs import by_slabs

SCALE_MODES = ("floor", "ceil", "even", "rceil")
_BIAS = 127  # of e8m0
_NAN = 255  # the one code of e8m0 that is no power of two


def e8m0(scale: torch.Tensor) -> torch.Tensor:
    """uint8 → 2**(byte - 127) in float32, exactly; 255 gives NaN (OCP MX 1.0, 5.4.1)."""
    # as the exponent field of a float32, which has the same bias; there 0 and 255 mean other things
    power = (scale.to(torch.int32) << 23).view(torch.float32)
    power = torch.where(scale == 0, 2.0**-_BIAS, power)
    return torch.where(scale == _NAN, math.nan, power)


@by_slabs
def dequantize_mx(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    *,
    element: str,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = element · 2**(scale - 127): both are cast to `dtype`, then multiplied in it.

    Args:
        qdata: fp8 as its dtype, fp6 as uint8 [..., N, K], fp4 as uint8 [..., N, K/2].
        scale: uint8, ceil(shape / block_size), not swizzled.
        element: one of `ELEMENTS`, by name.

    Raises:
        FieldError: `qdata` has another dtype than such elements.

    Source: torchao 0.18, `to_dtype`, whose bits these are.
    """
    form = element_of(element)
    if qdata.dtype != (form.dtype or torch.uint8):
        raise FieldError(f"qdata is {qdata.dtype}, which does not hold elements of {element}")
    if form.dtype is not None:
        values = qdata.to(dtype)  # exact: every floating dtype of two bytes holds fp8
    else:
        codes = unpack_nibbles(qdata) if form.codes_per_byte == 2 else qdata
        values = decode(codes, form).to(dtype)
    return times(values, e8m0(scale).to(dtype), block_size)


@by_slabs
def quantize_mx(
    w: torch.Tensor, *, element: str, block_size: Sequence[int], scale_mode: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and power-of-two scales of a weight; see `mx_scale`.

    Each value is divided by its scale, which is exact, and rounded to the nearest element, ties to
    even, saturating. A block of zeros has scale 2**-127.

    Args:
        w: floating point, any shape; the last dimension even for fp4.

    Returns:
        qdata: as `dequantize_mx` takes it. scale: uint8, ceil(shape / block_size).

    Raises:
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.

    Codes and scales are those of torchao 0.18, but for two things. Where scale byte is 0 (2**-127),
    torchao divides by 2**-126, or with `rceil` by 1, and so gets codes of half the value, or of
    zero. And in `rceil` on a CPU it rounds up by a float32 logarithm, which takes a quotient just
    above a power of two for that power; here the quotient is rounded up exactly, as its GPU
    instruction does.
    """
    form = element_of(element)
    scale = mx_scale(largest_magnitude(w, block_size), form, scale_mode)
    codes = encode(_scaled(w, scale, block_size), form)
    return (pack_nibbles(codes) if form.codes_per_byte == 2 else codes), scale


def through_mx(
    x: torch.Tensor, *, element: str, block_size: Sequence[int], scale_mode: str
) -> torch.Tensor:
    """`x` quantized and dequantized, in float32; a block with an infinity or NaN becomes NaN."""
    form = element_of(element)
    scale = mx_scale(block_max(x.abs(), block_size).to(torch.float32), form, scale_mode)
    values = decode(encode(_scaled(x, scale, block_size), form), form)
    return times(values, e8m0(scale), block_size)


def mx_scale(largest: torch.Tensor, element: Element, scale_mode: str) -> torch.Tensor:
    """The e8m0 scale of each block.

    With emax the exponent of the largest power of two among the elements:

        floor   2**floor(log2(largest)) / 2**emax                          (OCP MX 1.0, 6.3)
        ceil    2**ceil(log2(largest)) / 2**emax
        even    as floor, `largest` first rounded to the element's mantissa, ties to even
        rceil   largest / the largest element, rounded up to a power of two

    Args:
        largest: max|x| of each block, float32.

    Returns:
        uint8; 0 for a block of zeros or values too small, 255 (NaN) where `largest` is not finite.
    """
    if scale_mode not in SCALE_MODES:
        raise QuantizationError(f"{scale_mode!r} is none of {', '.join(SCALE_MODES)}")
    # both are mantissa · 2**exponent, the mantissa from 1/2 to below 1
    mantissa, exponent = torch.frexp(largest)
    limit, limit_exponent = math.frexp(element.largest)
    match scale_mode:
        case "floor":
            above = torch.zeros_like(mantissa, dtype=torch.bool)
        case "ceil":
            above = mantissa > 0.5
        case "even":  # what rounds to the next power of two
            above = mantissa >= 1 - 2.0 ** -(element.mantissa_bits + 2)
        case _:
            above = mantissa > limit
    power = exponent - limit_exponent + above
    byte = (power + _BIAS).clamp(0, _NAN - 1)
    byte = torch.where(largest == 0, torch.zeros_like(byte), byte)
    return torch.where(torch.isfinite(largest), byte, _NAN).to(torch.uint8)


def _scaled(x: torch.Tensor, scale: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """`x` over its scales, as a product with their reciprocals: powers of two, so exact."""
    # 2**(127 - byte) has an exponent field of 254 - byte; of byte 254 that is the subnormal 2**-127
    inverse = ((254 - scale.to(torch.int32)) << 23).clamp(min=0).view(torch.float32)
    inverse = torch.where(scale == 254, 2.0**-_BIAS, inverse)
    inverse = torch.where(scale == _NAN, math.nan, inverse)
    return times(x.to(torch.float32), inverse, block_size)
