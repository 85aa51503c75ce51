"""What a weight's settings ask of its activation, and which of them have a known meaning."""

from __future__ import annotations

import torch

from aoserial.kernels.arithmetic import ELEMENTS, FLOAT8_DTYPES
from aoserial.kernels.spec import ActivationSpec, Spec
from aoserial.storage.dtypes import dtype_name

_FLOAT8_NAMES = {dtype_name(dtype) for dtype in FLOAT8_DTYPES}


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


def extent(spec: ActivationSpec) -> str | None:
    """Which elements of an activation [..., K] share a scale: `tensor`, `row`, or `1x128` and such.

    None for what is none of these, as scales along another dimension than the last.
    """
    match spec.granularity:
        case "tensor":
            return "tensor"
        case "row" | "token":
            return "row" if spec.dim in (None, -1) else None
        case "group":
            return f"1x{spec.group_size}"
        case "block":
            *outer, columns = spec.block_size or (0,)
            return f"1x{columns}" if all(size == 1 for size in outer) else None
    return None


def weight_extent(spec: Spec) -> str:
    """Which elements of a weight [..., N, K] share a scale: `tensor`, `row`, `128x128`, `1x32` …"""
    (rows, columns), (block_rows, block_columns) = spec.shape[-2:], spec.block_size[-2:]
    if block_columns < columns or 1 < block_rows < rows:
        return f"{block_rows}x{block_columns}"
    return "row" if block_rows < rows else "tensor"
