"""Quantizing the activation of a linear layer, as the library that wrote the weight does it.

Formulas of torchao 0.18 (`Float8Tensor.from_hp`, `Int8Tensor.from_hp`, `to_mx`, `nvfp4_quantize`),
statistics in the dtype of the activation. Two things differ: where a whole block is zero, torchao's
float8 gives NaN, and this gives zeros; where one holds an infinity, MX and NVFP4 give NaN here.
"""

from __future__ import annotations

from typing import overload

import torch

from aoserial.kernels.arithmetic import (
    ELEMENTS,
    FLOAT8_DTYPES,
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
from aoserial.kernels.spec import ActivationSpec
from aoserial.storage.dtypes import dtype_name, torch_dtype

_FLOAT8_NAMES = {dtype_name(dtype) for dtype in FLOAT8_DTYPES}
_INT8_EPS = torch.finfo(torch.float32).eps  # least scale of torchao's Int8Tensor


def format_of(spec: ActivationSpec) -> str | None:
    """`int8`, `float8`, `mx` or `nvfp4`; None for one that is not implemented."""
    if spec.scale_mode is not None:
        return "mx" if spec.dtype in ELEMENTS else None
    if spec.dtype in _FLOAT8_NAMES:
        return "float8"
    return {"int8": "int8", "float4_e2m1fn_x2": "nvfp4"}.get(spec.dtype)


def leaves_alone(spec: ActivationSpec, x: torch.Tensor) -> bool:
    """Whether an activation of this shape is not quantized.

    Source: torchao 0.8 to 0.17, `_int8_symm_per_token_reduced_range_quant_noop_decode`.
    """
    return spec.skip_decode and x.dim() > 1 and x.shape[1] == 1


def refusal(spec: ActivationSpec, parts: tuple[str, ...]) -> str | None:
    """Why `fake_quantize` cannot honour these settings; None if it can.

    Args:
        parts: the names of the weight's parts.
    """
    kind = format_of(spec)
    in_blocks = kind in ("mx", "nvfp4")  # whose scales are always computed from the activation
    whole = not spec.reduce_range and not spec.narrow_range and spec.least_scale is None
    plain = spec.mapping == "symmetric" and whole and "act_zero_point" not in parts
    refused = {
        f"an activation in {spec.dtype} is not implemented": kind is None,
        f"an activation in {spec.dtype} with power-of-two scales has no static scale": (
            kind == "mx" and (spec.static or "act_scale" in parts)
        ),
        "an NVFP4 activation has no act_scale, but an act_per_tensor_scale": (
            kind == "nvfp4"
            and ("act_scale" in parts or (spec.static and "act_per_tensor_scale" not in parts))
        ),
        "the activation is static, but the weight has no act_scale": (
            not in_blocks and spec.static and "act_scale" not in parts
        ),
        "the activation is dynamic, but the weight has an act_scale": (
            not in_blocks and not spec.static and "act_scale" in parts
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
            (spec.lower_bound is not None or spec.upper_bound is not None) and kind != "float8"
        ),
        "a scale of the whole activation beside those of blocks belongs to NVFP4": (
            (spec.tensor_scale or "act_per_tensor_scale" in parts) and kind != "nvfp4"
        ),
        "a floating-point activation is symmetric and uses its whole range": (
            kind != "int8" and not plain
        ),
        "codes from -127 are not half of the code range": (spec.narrow_range and spec.reduce_range),
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
        scale, zero_point: of a static activation; one, or one a block. For NVFP4 `scale` is that of
            the whole activation.
    """
    block_size = blocks(spec, x)
    match format_of(spec):
        case "mx":
            mode = spec.scale_mode or ""
            return through_mx(x, element=spec.dtype, block_size=block_size, scale_mode=mode)
        case "nvfp4":
            if scale is not None:
                scale = scale.to(torch.float32).reshape(())
            elif spec.tensor_scale:
                scale = tensor_scale(x)
            return through_nvfp4(x, scale, block_size=block_size)
        case "int8":
            low, high = _int8_limits(spec)
            if scale is None:
                least = _INT8_EPS if spec.least_scale is None else spec.least_scale
                scale, zero_point = _int8_parameters(x, spec, block_size, (low, high), least)
                scale = scale.to(torch.float32)
            scale, zero_point = _ranked(scale, x), _ranked(zero_point, x)
            codes = _int8_codes(x, block_size, scale, zero_point, (low, high))
            return dequantize_int8(
                codes, scale, zero_point, block_size=block_size, dtype=torch.float32
            )
        case _:
            dtype = torch_dtype(spec.dtype)
            if scale is None:
                scale = _float8_scale(x, spec, block_size, dtype)
            scale = _ranked(scale, x)
            qdata = cast_float8(x.to(torch.float32) / expand(scale, block_size, x.shape), dtype)
            return dequantize_float8(qdata, scale, block_size=block_size, dtype=torch.float32)


def fake_quantize_narrow(x: torch.Tensor, spec: ActivationSpec) -> torch.Tensor:
    """The same for a dynamic int8 activation, everything computed in the dtype of `x`.

    Source: torchao 0.18, `_apply_int8_act_asym_per_token_quant_dequant`, for its intx weights.
    """
    block_size = blocks(spec, x)
    limits = _int8_limits(spec)
    least = torch.finfo(x.dtype).tiny if spec.least_scale is None else spec.least_scale
    scale, zero_point = _int8_parameters(x, spec, block_size, limits, least)
    codes = _int8_codes(x, block_size, scale, zero_point, limits)
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


def _int8_limits(spec: ActivationSpec) -> tuple[int, int]:
    """The lowest and the highest code."""
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


def _int8_codes(
    x: torch.Tensor,
    block_size: tuple[int, ...],
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    limits: tuple[int, int],
) -> torch.Tensor:
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
