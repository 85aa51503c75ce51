"""Integer codes: with a scale and perhaps a zero point a block.

What a zero point means is its domain; `mid` is the middle code, 8 of 0 to 15 and 0 of signed codes:

    none     w = (q - mid) s         int      w = (q - z) s
    float    w = (q - mid) s + z     offset   w = q s + z
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.errors import QuantizationError
from aoserial.kernels.arithmetic.blocks import (
    block_max,
    block_min,
    check_finite,
    check_floating,
    expand,
    largest_magnitude,
    times,
)
from aoserial.kernels.arithmetic.nibbles import pack_nibbles, unpack_nibbles
from aoserial.kernels.arithmetic.slabs import by_slabs

ZERO_DOMAINS = ("none", "int", "float", "offset")
INT8_LIMIT = 127  # -128 is never made, so that -w has the negated codes of w
_INT4_MID = 8


@by_slabs
def dequantize_int8(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    block_size: Sequence[int],
    dtype: torch.dtype,
    group_index: torch.Tensor | None = None,
) -> torch.Tensor:
    """w = (qdata - zero_point) · scale.

    The difference is taken in `dtype`; the product in the wider of `dtype` and that of the scale,
    then rounded to `dtype`.

    Args:
        qdata: int8 [..., N, K].
        scale, zero_point: ceil(shape / block_size).
        group_index: [K], the group of each k; see `expand`.

    Source: torchao 0.15 to 0.18, `_dequantize_affine_no_dtype_check`.
    """
    codes = qdata.to(dtype)
    if zero_point is not None:
        codes = codes - expand(zero_point, block_size, qdata.shape, group_index).to(dtype)
    return (codes * expand(scale, block_size, qdata.shape, group_index)).to(dtype)


@by_slabs
def dequantize_intx(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    zero_domain: str,
    block_size: Sequence[int],
    dtype: torch.dtype,
    group_index: torch.Tensor | None = None,
) -> torch.Tensor:
    """Signed codes of 1 to 8 bits, computed in `dtype` like int8.

    In the domains `float` and `offset`, the same for signed codes, the product is rounded to
    `dtype` before the zero point is added, and the sum after.

    Args:
        qdata: int8 [..., N, K].
        scale, zero_point: ceil(shape / block_size).

    Source: torchao 0.15 to 0.18, `dequantize_affine` (`none`, `int`) and
    `_dequantize_affine_tinygemm_no_dtype_check` (`float`).
    """
    if zero_domain in ("none", "int"):
        offset, added = zero_point, None
    else:
        offset, added = None, zero_point
    product = dequantize_int8(
        qdata, scale, offset, block_size=block_size, dtype=dtype, group_index=group_index
    )
    if added is None:
        return product
    return (product + expand(added, block_size, qdata.shape, group_index)).to(dtype)


@by_slabs
def dequantize_int4(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    zero_domain: str,
    block_size: Sequence[int],
    dtype: torch.dtype,
    group_index: torch.Tensor | None = None,
    narrow_arithmetic: bool = False,
) -> torch.Tensor:
    """Codes 0 to 15, computed in float32, each operation rounded, and then cast to `dtype`.

    Args:
        qdata: uint8 [..., N, K/2], even k in the low nibble.
        scale, zero_point: ceil(shape / block_size).
        narrow_arithmetic: each operation is rounded to `dtype` instead, as those of intx are
            (torchao 0.2 to 0.17, `_dequantize_affine_tinygemm_no_dtype_check`).
    """
    working = dtype if narrow_arithmetic else torch.float32
    codes = unpack_nibbles(qdata).to(working)

    def spread(part: torch.Tensor) -> torch.Tensor:
        wide = part if narrow_arithmetic else part.to(torch.float32)
        return expand(wide, block_size, codes.shape, group_index)

    if zero_domain in ("none", "float"):
        codes = codes - _INT4_MID
    elif zero_domain == "int" and zero_point is not None:
        codes = codes - spread(zero_point).to(working)
    w = (codes * spread(scale)).to(working)
    if zero_domain in ("float", "offset") and zero_point is not None:
        w = (w + spread(zero_point)).to(working)
    return w.to(dtype)


@by_slabs
def quantize_int8(
    w: torch.Tensor, *, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a weight: scale = max|w| / 127, in float32; codes -127 … 127.

    Each value is divided by its scale and rounded to the nearest integer, ties to even. A block of
    zeros has scale 1.

    Args:
        w: floating point, any shape.

    Returns:
        qdata: int8, the shape of `w`. scale: float32, ceil(shape / block_size).

    Raises:
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
    """
    scale = largest_magnitude(w, block_size) / INT8_LIMIT
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    codes = torch.round(w.to(torch.float32) / expand(scale, block_size, w.shape))
    return codes.clamp(-INT8_LIMIT, INT8_LIMIT).to(torch.int8), scale


@by_slabs
def quantize_intx(
    w: torch.Tensor, *, bit_width: int, zero_domain: str, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Codes, scales and zero points of a weight, codes -2**(b-1) to 2**(b-1) - 1.

    Returns:
        qdata: int8, the shape of `w`. scale and zero_point: see `_affine`.

    Raises:
        QuantizationError: as `_affine`, or a bit width that is not 1 to 8.
    """
    if not 1 <= bit_width <= 8:
        raise QuantizationError(f"bit_width is {bit_width}, expected 1 to 8")
    half = 2 ** (bit_width - 1)
    codes, scale, zero_point = _affine(w, (-half, half - 1), zero_domain, block_size)
    return codes.to(torch.int8), scale, zero_point


@by_slabs
def quantize_int4(
    w: torch.Tensor, *, zero_domain: str, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Packed codes, scales and zero points of a weight.

    Returns:
        qdata: uint8 [..., N, K/2]. scale and zero_point: see `_affine`.

    Raises:
        QuantizationError: as `_affine`, or K is odd.
    """
    codes, scale, zero_point = _affine(w, (0, 15), zero_domain, block_size)
    return pack_nibbles(codes.to(torch.uint8)), scale, zero_point


def _affine(
    w: torch.Tensor, limits: tuple[int, int], zero_domain: str, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
    """Codes as floats, scales and zero points, computed in float32 (float64 for such a weight).

        none     scale = max|w| / half the range of codes
        int      scale = (max(w, 0) - min(w, 0)) / the range; zero_point the code of 0
        float    scale = (max(w) - min(w)) / the range; zero_point the value of the middle code
        offset   the same scale; zero_point the value of code 0

    Scales have the dtype of `w`, and so have zero points in weights; zero points in codes are int8.
    Codes are rounded to the nearest, ties to even, with the scale as it is stored.

    Raises:
        QuantizationError: `w` holds an infinity or NaN, has a range beyond its dtype, or is no
            floating-point tensor; another domain.

    Source: torchao 0.18, `choose_qparams_affine` (symmetric and asymmetric) and `quantize_affine`,
    `_choose_qparams_affine_tinygemm` and `_quantize_affine_tinygemm`. A float32 weight gets
    torchao's bits. torchao computes with half-precision weights in half precision, and so rounds
    some codes to the second nearest; these are the nearest.
    """
    if zero_domain not in ZERO_DOMAINS:
        raise QuantizationError(f"{zero_domain!r} is none of {', '.join(ZERO_DOMAINS)}")
    values = check_floating(w).to(torch.promote_types(w.dtype, torch.float32))
    low, high = limits
    if zero_domain == "none":
        most = block_max(w.abs(), block_size).to(values.dtype)  # exact, at half the width
        scale, least = most / ((high - low) / 2), -most
    else:
        least = block_min(w, block_size).to(values.dtype)
        most = block_max(w, block_size).to(values.dtype)
        if zero_domain == "int":  # zero lies in the range, and keeps a code of its own
            least, most = least.clamp(max=0), most.clamp(min=0)
        scale = (most - least) / (high - low)
    scale = check_finite(scale.clamp(min=torch.finfo(w.dtype).tiny).to(w.dtype))
    step = scale.to(values.dtype)
    middle = (low + high + 1) // 2
    zero_point = None
    if zero_domain in ("float", "offset"):
        from_low = (middle if zero_domain == "float" else 0) - low
        zero_point = (least + step * from_low).to(w.dtype)
        start = zero_point.to(values.dtype) - step * from_low
        steps = (values - expand(start, block_size, w.shape)) / expand(step, block_size, w.shape)
        codes = torch.round(steps) + low
    else:
        zero: torch.Tensor | int = middle
        if zero_domain == "int":
            zero_point = (low - torch.round(least / step)).clamp(low, high).to(torch.int8)
            zero = expand(zero_point, block_size, w.shape)
        codes = torch.round(times(values, 1.0 / step, block_size)) + zero
    return codes.clamp(low, high), scale, zero_point
