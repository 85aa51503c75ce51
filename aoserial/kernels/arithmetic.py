"""The public arithmetic of quantized weights: what codes mean and how they are made.

Dequantizing is bit for bit that of torchao 0.14 to 0.18 (Float8Tensor, Int8Tensor), whose order of
operations and roundings is part of the meaning of a file.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import QuantizationError

FLOAT8_DTYPES = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)
INT8_LIMIT = 127  # -128 is never made, so that -w has the negated codes of w


def expand(scale: torch.Tensor, block_size: Sequence[int], shape: Sequence[int]) -> torch.Tensor:
    """Repeats each scale over its block, as far as broadcasting does not do that by itself.

    Args:
        scale: ceil(shape / block_size).
        shape: of the codes; the last block of a dimension may be cut short.

    Returns:
        A tensor that broadcasts to `shape`, each element with the scale of its block.
    """
    for dim, (size, length) in enumerate(zip(block_size, shape, strict=True)):
        if scale.shape[dim] not in (1, length):
            scale = scale.repeat_interleave(size, dim=dim).narrow(dim, 0, length)
    return scale


def dequantize_float8(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    *,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = qdata · scale, multiplied in float32 and rounded once to `dtype`.

    Args:
        qdata: float8 [..., N, K].
        scale: floating point, ceil(shape / block_size).

    Source: torchao 0.14 to 0.18, `_dequantize_affine_float8`.
    """
    return (qdata.to(torch.float32) * expand(scale, block_size, qdata.shape)).to(dtype)


def dequantize_int8(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None = None,
    *,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = (qdata - zero_point) · scale.

    The difference is taken in `dtype`; the product in the wider of `dtype` and that of the scale,
    then rounded to `dtype`.

    Args:
        qdata: int8 [..., N, K].
        scale, zero_point: ceil(shape / block_size).

    Source: torchao 0.15 to 0.18, `_dequantize_affine_no_dtype_check`.
    """
    codes = qdata.to(dtype)
    if zero_point is not None:
        codes = codes - expand(zero_point, block_size, qdata.shape).to(dtype)
    return (codes * expand(scale, block_size, qdata.shape)).to(dtype)


def quantize_float8(
    w: torch.Tensor, *, block_size: Sequence[int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and scales of a weight: scale = max|w| / max(dtype), in float32.

    Each value is divided by its scale and rounded to the nearest code, ties to even. A block of
    zeros has scale 1.

    Args:
        w: floating point, any shape.
        dtype: one of `FLOAT8_DTYPES`.

    Returns:
        qdata: `dtype`, the shape of `w`. scale: float32, ceil(shape / block_size).

    Raises:
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
    """
    if dtype not in FLOAT8_DTYPES:
        raise QuantizationError(f"{dtype} is no float8 dtype")
    scale = _scale(w, block_size, torch.finfo(dtype).max)
    return cast_float8(w.to(torch.float32) / expand(scale, block_size, w.shape), dtype), scale


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
    scale = _scale(w, block_size, INT8_LIMIT)
    codes = torch.round(w.to(torch.float32) / expand(scale, block_size, w.shape))
    return codes.clamp(-INT8_LIMIT, INT8_LIMIT).to(torch.int8), scale


def cast_float8(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`values` as float8, what is beyond its range at its largest finite value.

    Clamped first: what an overflowing cast gives (448, NaN, infinity) depends on dtype and device.
    """
    limit = torch.finfo(dtype).max
    return values.clamp(-limit, limit).to(dtype)


def block_max(x: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    """The largest element of each block and zero, ceil(shape / block_size), in the dtype of `x`."""
    for dim, size in enumerate(block_size):
        length = x.shape[dim]
        blocks = -(-length // size)
        missing = blocks * size - length  # zeros fill the last block up
        if missing:
            x = F.pad(x, [0, 0] * (x.dim() - 1 - dim) + [0, missing])
        x = x.reshape(*x.shape[:dim], blocks, size, *x.shape[dim + 1 :]).amax(dim + 1)
    return x.clamp(min=0)


def _scale(w: torch.Tensor, block_size: Sequence[int], limit: float) -> torch.Tensor:
    if not w.is_floating_point() or w.dtype in FLOAT8_DTYPES:
        raise QuantizationError(f"a weight to quantize must be floating point, not {w.dtype}")
    largest = block_max(w.abs(), block_size).to(torch.float32)
    if not torch.isfinite(largest).all():  # amax hands an infinity or NaN on
        raise QuantizationError("the weight holds an infinity or NaN, which no code stands for")
    scale = largest / limit
    return torch.where(scale == 0, torch.ones_like(scale), scale)
