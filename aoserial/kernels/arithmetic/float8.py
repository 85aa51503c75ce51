"""float8 codes with a scale a block."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels.arithmetic.blocks import expand, largest_magnitude
from aoserial.kernels.arithmetic.slabs import by_slabs

FLOAT8_DTYPES = (
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
)


@by_slabs
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


def dequantize_float8_training(
    qdata: torch.Tensor, scale: torch.Tensor, *, dtype: torch.dtype
) -> torch.Tensor:
    """w = qdata / scale, divided in float32 (float64 for that dtype), rounded once to `dtype`.

    Args:
        qdata: float8, any shape.
        scale: float32, one number, or of the rank of `qdata` and broadcast over it.

    Raises:
        FieldError: a scale of another shape.

    Source: torchao 0.4 to 0.18, `to_original_precision` of the training tensor.
    """
    shapes = zip(scale.shape, qdata.shape, strict=False)
    if scale.dim() not in (0, qdata.dim()) or any(one not in (1, all_) for one, all_ in shapes):
        raise FieldError(
            f"shape is {list(scale.shape)}, expected one number or one to broadcast over "
            f"{list(qdata.shape)}"
        ).locate(field="scale")
    wide = torch.promote_types(dtype, torch.float32)
    return (qdata.to(wide) / scale).to(dtype)


@by_slabs
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
    scale = largest_magnitude(w, block_size) / torch.finfo(dtype).max
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return cast_float8(w.to(torch.float32) / expand(scale, block_size, w.shape), dtype), scale


def cast_float8(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`values` as float8, what is beyond its range at its largest finite value.

    Clamped first: what an overflowing cast gives (448, NaN, infinity) depends on dtype and device.
    """
    limit = torch.finfo(dtype).max
    return values.clamp(-limit, limit).to(dtype)
