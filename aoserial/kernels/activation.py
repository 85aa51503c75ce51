"""Quantizing the activation of a linear layer, as the library that wrote the weight does it.

Formulas of torchao 0.18 (`Float8Tensor.from_hp`, `Int8Tensor.from_hp`, `to_mx`, `nvfp4_quantize`),
statistics in the dtype of the activation. Two things differ: where a whole block is zero, torchao's
float8 gives NaN, and this gives zeros; where one holds an infinity, MX and NVFP4 give NaN here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, overload

import torch

from aoserial.kernels.arithmetic import (
    block_max,
    block_min,
    cast_float8,
    dequantize_float8,
    dequantize_int8,
    expand,
    tensor_scale,
    through_mx,
    through_nvfp4,
)
from aoserial.kernels.settings import format_of
from aoserial.kernels.spec import ActivationSpec, Spec
from aoserial.storage.dtypes import torch_dtype

_INT8_EPS = torch.finfo(torch.float32).eps  # least scale of torchao's Int8Tensor


def prescaled(x: torch.Tensor, spec: Spec, parts: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """The activation times or divided by the weight's act_pre_scale, where it has one.

    Its dtype is then the wider of the two.
    """
    pre_scale = parts.get("act_pre_scale")
    if pre_scale is None:
        return x
    return x / pre_scale if spec.act_pre_scale_op == "divide" else x * pre_scale


def fake_quantize(
    x: torch.Tensor,
    spec: ActivationSpec,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
) -> torch.Tensor:
    """The activation after quantizing and dequantizing, in float32.

    Args:
        x: [..., K], floating point.
        scale, zero_point: of a static activation; one, or one a block. For NVFP4 `scale` is that of
            the whole activation.
    """
    match format_of(spec):
        case "mx":
            mode = spec.scale_mode or ""
            return through_mx(x, element=spec.dtype, block_size=blocks(spec, x), scale_mode=mode)
        case "nvfp4":
            if scale is not None:
                scale = scale.to(torch.float32).reshape(())
            elif spec.tensor_scale:
                scale = tensor_scale(x)
            return through_nvfp4(x, scale, block_size=blocks(spec, x))
    codes, scale, zero_point, block_size = quantize(x, spec, scale, zero_point)
    if codes.is_floating_point():
        return dequantize_float8(codes, scale, block_size=block_size, dtype=torch.float32)
    return dequantize_int8(codes, scale, zero_point, block_size=block_size, dtype=torch.float32)


class Codes(NamedTuple):
    """An activation in float8 or int8.

    Attributes:
        codes: of the shape of the activation.
        scale, zero_point: ceil(shape / block_size), or broadcast over that.
        block_size: elements that share a scale, by dimension.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None
    block_size: tuple[int, ...]


def quantize(
    x: torch.Tensor,
    spec: ActivationSpec,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
) -> Codes:
    """The codes for which `fake_quantize` gives the values, of a float8 or an int8 activation.

    Args:
        x, scale, zero_point: as for `fake_quantize`.
    """
    block_size = blocks(spec, x)
    if format_of(spec) == "int8":
        scale, zero_point = int8_parameters(x, spec, scale, zero_point)
        codes = int8_codes(x, block_size, scale, zero_point, int8_limits(spec))
        return Codes(codes, scale, zero_point, block_size)
    dtype = torch_dtype(spec.dtype)
    if scale is None:
        scale = _float8_scale(x, spec, block_size, dtype)
    scale = _ranked(scale, x)
    codes = cast_float8(x.to(torch.float32) / expand(scale, block_size, x.shape), dtype)
    return Codes(codes, scale, None, block_size)


def int8_parameters(
    x: torch.Tensor,
    spec: ActivationSpec,
    scale: torch.Tensor | None = None,
    zero_point: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scale and zero point of an int8 activation, as `Codes` has them; a dynamic scale in float32.

    Args:
        x, scale, zero_point: as for `fake_quantize`.
    """
    if scale is None:
        least, limits = int8_least_scale(spec), int8_limits(spec)
        scale, zero_point = _int8_parameters(x, spec, blocks(spec, x), limits, least)
        scale = scale.to(torch.float32)
    return _ranked(scale, x), _ranked(zero_point, x)


def int8_least_scale(spec: ActivationSpec) -> float:
    """The least that a dynamic scale is set to."""
    return _INT8_EPS if spec.least_scale is None else spec.least_scale


def fake_quantize_narrow(x: torch.Tensor, spec: ActivationSpec) -> torch.Tensor:
    """The same for a dynamic int8 activation, everything computed in the dtype of `x`.

    Source: torchao 0.18, `_apply_int8_act_asym_per_token_quant_dequant`, for its intx weights.
    """
    block_size = blocks(spec, x)
    limits = int8_limits(spec)
    least = torch.finfo(x.dtype).tiny if spec.least_scale is None else spec.least_scale
    scale, zero_point = _int8_parameters(x, spec, block_size, limits, least)
    codes = int8_codes(x, block_size, scale, zero_point, limits)
    return dequantize_int8(codes, scale, zero_point, block_size=block_size, dtype=x.dtype)


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


def int8_limits(spec: ActivationSpec) -> tuple[int, int]:
    """The lowest and the highest code of an int8 activation."""
    if spec.reduce_range:
        return -64, 63
    return (-127 if spec.narrow_range else -128), 127


def _int8_parameters(
    x: torch.Tensor,
    spec: ActivationSpec,
    block_size: tuple[int, ...],
    limits: tuple[int, int],
    least_scale: float,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Scale and zero point (int8, None for a symmetric mapping), in the dtype of the activation."""
    low, high = limits
    most, least = block_max(x, block_size).clamp(min=0), block_min(x, block_size).clamp(max=0)
    if spec.mapping == "asymmetric":
        scale = ((most - least) / float(high - low)).clamp(min=least_scale)
        zero_point = (low - torch.round(least / scale)).clamp(low, high)
        return scale, zero_point.to(torch.int8)
    if spec.mapping == "symmetric":
        scale = torch.maximum(-least, most) / (float(high - low) / 2)
    else:
        scale = torch.maximum(least / float(low), most / float(high))
    return scale.clamp(min=least_scale), None


def int8_codes(
    x: torch.Tensor,
    block_size: tuple[int, ...],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    limits: tuple[int, int],
) -> torch.Tensor:
    """Of the shape of `x`; scale and zero point as `int8_parameters` gives them."""
    codes = torch.round(x * (1.0 / expand(scale, block_size, x.shape)))
    if zero_point is not None:
        codes = codes + expand(zero_point, block_size, x.shape)
    return codes.clamp(*limits).to(torch.int8)


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
