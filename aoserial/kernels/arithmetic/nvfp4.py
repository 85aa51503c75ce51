"""NVFP4: fp4 elements, an e4m3 scale a block of 16, and perhaps a scale of the whole tensor.

Source: torchao 0.18, `nvfp4_quantize` and `NVFP4Tensor.dequantize`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels.arithmetic.blocks import (
    block_max,
    check_floating,
    largest_magnitude,
    times,
)
from aoserial.kernels.arithmetic.elements import FP4, decode, encode
from aoserial.kernels.arithmetic.nibbles import pack_nibbles, unpack_nibbles
from aoserial.kernels.arithmetic.slabs import by_slabs

NVFP4_BLOCK = 16  # values that share a scale, by definition of the format
_SCALE_MAX = torch.finfo(torch.float8_e4m3fn).max
_SCALE_MIN = torch.finfo(torch.float8_e4m3fn).tiny  # torchao makes no smaller, subnormal scale
# the least scale of a tensor whose reciprocal, over the least scale of a block, is finite
LEAST_TENSOR_SCALE = 2.0**-120


@by_slabs
def dequantize_nvfp4(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    per_tensor_scale: torch.Tensor | None = None,
    *,
    scale_op: str,
    scale_dtype: torch.dtype,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = element · (per_tensor_scale · scale), the first product in float32, rounded to `dtype`.

    Args:
        qdata: uint8 [..., N, K/2], fp4 codes.
        scale: float8_e4m3fn, ceil(shape / block_size), not swizzled.
        per_tensor_scale: one number, or one a matrix: [..., 1, 1].
        scale_op: `multiply`, or `divide`: scale / per_tensor_scale.
        scale_dtype: to which both scales are cast, and their product or quotient is rounded: the
            dtype of the weight in torchao up to 0.17, float32 in 0.18.

    Raises:
        FieldError: per_tensor_scale does not fit the scales.
    """
    values = decode(unpack_nibbles(qdata), FP4)
    total = nvfp4_scale(scale, per_tensor_scale, scale_op=scale_op, scale_dtype=scale_dtype)
    return times(values, total, block_size).to(dtype)


def nvfp4_scale(
    scale: torch.Tensor,
    per_tensor_scale: torch.Tensor | None = None,
    *,
    scale_op: str,
    scale_dtype: torch.dtype,
) -> torch.Tensor:
    """The scale of each block with that of the tensor, in float32; see `dequantize_nvfp4`."""
    total = scale.to(scale_dtype)
    if per_tensor_scale is not None:
        whole = _of_rank(per_tensor_scale, scale).to(scale_dtype)
        total = whole * total if scale_op == "multiply" else total / whole
    return total.to(torch.float32)


@by_slabs
def quantize_nvfp4(
    w: torch.Tensor, per_tensor_scale: torch.Tensor | None = None, *, block_size: Sequence[int]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and e4m3 scales of a weight, all computed in float32.

    scale = max|w| / 6 / per_tensor_scale, rounded to e4m3 within its normal range, 2**-6 to 448;
    each value is multiplied by the reciprocal of its scales and rounded to the nearest element,
    ties to even, saturating.

    Args:
        w: floating point, any shape; the last dimension even.
        per_tensor_scale: float32, one number or [..., 1, 1]; None means 1.

    Returns:
        qdata: uint8, the last dimension halved. scale: float8_e4m3fn, ceil(shape / block_size).

    Raises:
        QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.

    Codes and scales are those of torchao 0.18; earlier releases divided by the scales, which now
    and then gives the neighbouring code.
    """
    scale, reciprocal = _scales(largest_magnitude(w, block_size), per_tensor_scale)
    return pack_nibbles(_codes(w, reciprocal, block_size)), scale


def through_nvfp4(
    x: torch.Tensor, per_tensor_scale: torch.Tensor | None = None, *, block_size: Sequence[int]
) -> torch.Tensor:
    """`x` quantized and dequantized, in float32; a block with an infinity or NaN becomes NaN."""
    largest = block_max(x.abs(), block_size).to(torch.float32)
    scale, reciprocal = _scales(largest, per_tensor_scale)
    total = scale.to(torch.float32)
    if per_tensor_scale is not None:
        total = per_tensor_scale * total
    total = torch.where(torch.isfinite(largest), total, torch.nan)
    return times(decode(_codes(x, reciprocal, block_size), FP4), total, block_size)


def tensor_scale(x: torch.Tensor) -> torch.Tensor:
    """One scale for all of `x`, with which the scales of its blocks use the whole range of e4m3.

    max|x| / (448 · 6) in float32, at least `LEAST_TENSOR_SCALE`, also where `x` is all zeros.

    Source: torchao 0.18, `per_tensor_amax_to_scale`.
    """
    return _full_range(x.reshape(1, -1)).reshape(())


def matrix_scale(w: torch.Tensor) -> torch.Tensor:
    """The same for a weight [N, K], as one number; of a stack one for each matrix, [..., 1, 1]."""
    if check_floating(w).dim() == 2:
        return tensor_scale(w)
    return _full_range(w.flatten(-2))[..., None]


def check_tensor_scale(per_tensor_scale: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A scale for `quantize_nvfp4` in float32, if it is one number or one a matrix of `w`.

    Raises:
        QuantizationError: it has another shape, or numbers that cannot scale.
    """
    shape, leading = per_tensor_scale.shape, w.shape[:-2]
    if shape not in ((), (*leading, 1, 1)):
        raise QuantizationError(
            f"per_tensor_scale has shape {list(shape)}, expected [] or {[*leading, 1, 1]}"
        )
    scale = per_tensor_scale.detach().to(torch.float32)
    if not (torch.isfinite(scale) & (scale >= LEAST_TENSOR_SCALE)).all():
        raise QuantizationError("per_tensor_scale must be finite and at least 2**-120")
    return scale


def _full_range(rows: torch.Tensor) -> torch.Tensor:
    """The scale of each row, the last dimension 1."""
    padded = F.pad(rows.abs(), (0, 1))  # a row may have no elements
    largest = padded.amax(-1, keepdim=True).to(torch.float32)
    return (largest / (_SCALE_MAX * FP4.largest)).clamp(min=LEAST_TENSOR_SCALE)


def _scales(
    largest: torch.Tensor, per_tensor_scale: torch.Tensor | None
) -> tuple[torch.Tensor, torch.Tensor]:
    """The scale of each block as e4m3, and the reciprocal of that times the tensor's scale."""
    scale = largest / FP4.largest
    if per_tensor_scale is not None:
        scale = scale / per_tensor_scale
    scale = scale.clamp(_SCALE_MIN, _SCALE_MAX).to(torch.float8_e4m3fn)
    one = 1.0 if per_tensor_scale is None else 1.0 / per_tensor_scale
    return scale, one / scale.to(torch.float32)


def _codes(x: torch.Tensor, reciprocal: torch.Tensor, block_size: Sequence[int]) -> torch.Tensor:
    return encode(times(x.to(torch.float32), reciprocal, block_size), FP4)


def _of_rank(per_tensor_scale: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """The tensor's scale, if it is one number or one a matrix."""
    numbers = per_tensor_scale.numel()
    if numbers == 1:
        return per_tensor_scale.reshape(())
    if tuple(per_tensor_scale.shape) != (*scale.shape[:-2], 1, 1):
        raise FieldError(
            f"per_tensor_scale has shape {list(per_tensor_scale.shape)}, expected [] or "
            f"{[*scale.shape[:-2], 1, 1]}"
        )
    return per_tensor_scale
