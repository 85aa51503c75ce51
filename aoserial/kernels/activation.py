"""Quantizing the activation of a linear layer, as the library that wrote the weight does it.

Formulas of torchao 0.18 (`Float8Tensor.from_hp`, `Int8Tensor.from_hp`), statistics in the dtype of
the activation. One thing differs: where a whole block is zero, torchao's float8 gives NaN, and this
gives zeros.
"""

from __future__ import annotations

from typing import overload

import torch

from aoserial.kernels.arithmetic import (
    FLOAT8_DTYPES,
    block_max,
    cast_float8,
    dequantize_float8,
    dequantize_int8,
    expand,
)
from aoserial.kernels.spec import ActivationSpec
from aoserial.storage.dtypes import dtype_name, torch_dtype

_FLOAT8_NAMES = {dtype_name(dtype) for dtype in FLOAT8_DTYPES}
_INT8_EPS = torch.finfo(torch.float32).eps  # torchao's least scale, whatever the dtype


def refusal(spec: ActivationSpec, parts: tuple[str, ...]) -> str | None:
    """Why `fake_quantize` cannot honour these settings; None if it can.

    Args:
        parts: the names of the weight's parts.
    """
    is_float8 = spec.dtype in _FLOAT8_NAMES
    bounded = spec.lower_bound is not None or spec.upper_bound is not None
    refused = {
        "the activation is static, but the weight has no act_scale": (
            spec.static and "act_scale" not in parts
        ),
        "the activation is dynamic, but the weight has an act_scale": (
            not spec.static and "act_scale" in parts
        ),
        f"an activation in {spec.dtype} is not implemented": (
            not is_float8 and spec.dtype != "int8"
        ),
        "the activation is quantized in groups, but their size is missing": (
            spec.granularity == "group" and not spec.group_size
        ),
        "the activation is quantized in blocks, but their size is missing": (
            spec.granularity == "block" and not spec.block_size
        ),
        "the activation is quantized along an axis, but it is not said which": (
            spec.granularity == "axis" and spec.dim is None
        ),
        "bounds of an activation that is not float8 have no known meaning": (
            bounded and not is_float8
        ),
        "a float8 activation is symmetric and uses its whole range": is_float8
        and (spec.mapping != "symmetric" or spec.reduce_range or "act_zero_point" in parts),
    }
    return next((sentence for sentence, holds in refused.items() if holds), None)


def fake_quantize(
    x: torch.Tensor,
    spec: ActivationSpec,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
) -> torch.Tensor:
    """The activation after quantizing and dequantizing, in float32.

    Args:
        x: [..., K], floating point.
        scale, zero_point: of a static activation; one, or one a block.
    """
    block_size = blocks(spec, x)
    if spec.dtype == "int8":
        low, high = (-64, 63) if spec.reduce_range else (-128, 127)
        if scale is None:
            scale, zero_point = _int8_parameters(x, spec, block_size, low, high)
        return _through_int8(x, block_size, _ranked(scale, x), _ranked(zero_point, x), (low, high))
    dtype = torch_dtype(spec.dtype)
    scale = _float8_scale(x, spec, block_size, dtype) if scale is None else _ranked(scale, x)
    qdata = cast_float8(x.to(torch.float32) / expand(scale, block_size, x.shape), dtype)
    return dequantize_float8(qdata, scale, block_size=block_size, dtype=torch.float32)


def blocks(spec: ActivationSpec, x: torch.Tensor) -> tuple[int, ...]:
    """The block size that a granularity means for an activation, by dimension.

    Source: torchao 0.18, `get_block_size`.
    """
    shape = tuple(max(1, length) for length in x.shape)
    ones = [1] * len(shape)
    match spec.granularity:
        case "tensor":
            return shape
        case "group":
            ones[-1] = spec.group_size or 1
        case "block":
            sizes = spec.block_size or ()
            return (*ones[: len(shape) - len(sizes)], *sizes)
        case "axis":
            axis = (spec.dim or 0) % len(shape)
            return (*shape[:axis], 1, *shape[axis + 1 :])
        case _:  # row and token: one scale for all along a dimension, the last unless named
            dim = -1 if spec.dim is None else spec.dim
            ones[dim] = shape[dim]
    return tuple(ones)


def _float8_scale(
    x: torch.Tensor, spec: ActivationSpec, block_size: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    largest = block_max(x.abs(), block_size)
    if spec.lower_bound is not None or spec.upper_bound is not None:
        largest = largest.clamp(min=spec.lower_bound, max=spec.upper_bound)
    scale = (largest / torch.finfo(dtype).max).to(torch.float32)
    return torch.where(scale == 0, torch.ones_like(scale), scale)


def _int8_parameters(
    x: torch.Tensor, spec: ActivationSpec, block_size: tuple[int, ...], low: int, high: int
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scale (float32) and zero point (int8, None for a symmetric mapping) of an activation."""
    most, least = block_max(x, block_size), -block_max(-x, block_size)
    if spec.mapping == "asymmetric":
        scale = ((most - least) / float(high - low)).clamp(min=_INT8_EPS)
        zero_point = (low - torch.round(least / scale)).clamp(low, high)
        return scale.to(torch.float32), zero_point.to(torch.int8)
    if spec.mapping == "symmetric":
        scale = torch.maximum(-least, most) / (float(high - low) / 2)
    else:
        scale = torch.maximum(least / float(low), most / float(high))
    return scale.clamp(min=_INT8_EPS).to(torch.float32), None


def _through_int8(
    x: torch.Tensor,
    block_size: tuple[int, ...],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    limits: tuple[int, int],
) -> torch.Tensor:
    codes = torch.round(x * (1.0 / expand(scale, block_size, x.shape)))
    if zero_point is not None:
        codes = codes + expand(zero_point, block_size, x.shape)
    codes = codes.clamp(*limits).to(torch.int8)
    return dequantize_int8(codes, scale, zero_point, block_size=block_size, dtype=torch.float32)


@overload
def _ranked(stored: torch.Tensor, x: torch.Tensor) -> torch.Tensor: ...
@overload
def _ranked(stored: None, x: torch.Tensor) -> None: ...
def _ranked(stored: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """A stored scale or zero point with the rank of the activation, ones added in front or cut."""
    if stored is None:
        return None
    shape = (1,) * (x.dim() - stored.dim()) + tuple(stored.shape)
    return stored.reshape(shape[len(shape) - x.dim() :])
