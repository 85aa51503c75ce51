"""The reference backend: dequantize, then `F.linear`. Runs anywhere; tests compare others to it."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.kernels.activation import fake_quantize, refusal
from aoserial.kernels.arithmetic import dequantize_float8, dequantize_int8, expand
from aoserial.kernels.spec import DeviceInfo, Spec, Weight
from aoserial.storage.dtypes import torch_dtype


class Reference:
    """Dequantizes the weight, then multiplies, in the order of operations of torchao 0.15 to 0.18.

    So a weight-only layer gives torchao's CPU output bit for bit: the product is rounded before
    the bias is added, and an int8 scale that is the same along K multiplies the product instead of
    the weight. Where the activation is quantized, it is quantized, dequantized and multiplied in
    float32, so that nothing is lost but what the codes lose.
    """

    name = "reference"

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or a sentence on what of the weight's settings this backend cannot honour."""
        del device
        if spec.kind not in ("float8", "int8"):
            return f"a weight of kind {spec.kind} is not implemented"
        if len(spec.shape) != 2:
            return f"F.linear takes a weight of two dimensions, not {len(spec.shape)}"
        if spec.activation is not None:
            return refusal(spec.activation, spec.parts)
        if "act_scale" in spec.parts or "act_zero_point" in spec.parts:
            return "the weight has an act_scale, but does not say how to quantize the activation"
        return None

    def linear(
        self, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`F.linear(x, weight, bias)`: x [..., K], bias [N], result [..., N] in the dtype of x."""
        spec, parts = weight.spec, weight.parts
        dtype = x.dtype
        if "act_pre_scale" in parts:
            x = x * parts["act_pre_scale"]
        if spec.activation is not None:
            scale, zero_point = parts.get("act_scale"), parts.get("act_zero_point")
            x = fake_quantize(x, spec.activation, scale, zero_point)
            wide = None if bias is None else bias.to(torch.float32)
            return F.linear(x, dequantize(weight, torch.float32), wide).to(dtype)
        if spec.kind == "int8" and spec.block_size[-1] >= spec.shape[-1]:
            y = F.linear(x.to(dtype), _codes(weight, dtype)) * _row_scale(weight).to(dtype)
        else:
            y = F.linear(x.to(dtype), dequantize(weight).to(dtype))
        return y if bias is None else (y + bias).to(dtype)


def dequantize(weight: Weight, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The plain tensor a weight stands for, in its own dtype unless another is given."""
    spec, parts = weight.spec, weight.parts
    dtype = torch_dtype(spec.dtype) if dtype is None else dtype
    if spec.kind == "float8":
        return dequantize_float8(
            parts["qdata"], parts["scale"], block_size=spec.block_size, dtype=dtype
        )
    return dequantize_int8(
        parts["qdata"],
        parts["scale"],
        parts.get("zero_point"),
        block_size=spec.block_size,
        dtype=dtype,
    )


def _codes(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    """int8 codes less their zero points, [N, K]; integers to ±255, which bfloat16 holds exactly."""
    codes, zero_point = weight.parts["qdata"].to(dtype), weight.parts.get("zero_point")
    if zero_point is None:
        return codes
    return codes - expand(zero_point, weight.spec.block_size, weight.spec.shape).to(dtype)


def _row_scale(weight: Weight) -> torch.Tensor:
    """The scale of each output, [N] or [1]."""
    return expand(weight.parts["scale"], weight.spec.block_size, weight.spec.shape).flatten()
