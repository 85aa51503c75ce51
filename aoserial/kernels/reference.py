"""The reference backend: dequantize, then `F.linear`. Runs anywhere; tests compare others to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.kernels.activation import (
    fake_quantize,
    fake_quantize_narrow,
    prescaled,
)
from aoserial.kernels.arithmetic import (
    dequantize_float8,
    dequantize_int4,
    dequantize_int8,
    dequantize_intx,
    dequantize_mx,
    dequantize_nvfp4,
    expand,
)
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.settings import format_of, leaves_alone, refusal
from aoserial.kernels.spec import Spec, Weight
from aoserial.storage.dtypes import torch_dtype

# the types of which torchao's own CPU code dequantizes the weight and calls F.linear with the bias
_PLAIN_LINEAR = ("intx", "mx", "nvfp4")
_STATIC_PARTS = {"act_scale", "act_zero_point", "act_per_tensor_scale"}


class Reference(Backend):
    """Dequantizes the weight, then multiplies, in the order of operations of torchao 0.15 to 0.18.

    So a weight-only layer gives torchao's CPU output bit for bit: for float8, int8 and int4 the
    product is rounded before the bias is added, and an int8 scale that is the same along K
    multiplies the product instead of the weight.

    Where the activation is quantized, it is quantized, dequantized and multiplied in float32, so
    that nothing is lost but what the codes lose. An intx weight meets its int8 activation in the
    dtype of the activation, since that is torchao's only arithmetic for it.
    """

    name = "reference"

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or a sentence on what of the weight's settings this backend cannot honour."""
        del device
        if spec.kind not in _DEQUANTIZE:
            return f"a weight of kind {spec.kind} is not implemented"
        if len(spec.shape) != 2:
            return f"F.linear takes a weight of two dimensions, not {len(spec.shape)}"
        if spec.activation is not None:
            return refusal(spec.activation, spec.parts)
        if stored := sorted(_STATIC_PARTS & set(spec.parts)):
            return f"the weight has an {stored[0]}, but does not say how to quantize the activation"
        return None

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`F.linear(x, weight, bias)`: x [..., K], bias [N], result [..., N] in the dtype of x."""
        weight = Weight(spec=packed.spec, parts=packed.parts)
        spec, dtype = weight.spec, x.dtype
        x, quantized = activated(x, weight)
        if quantized and not _is_narrow(spec):
            return _plain_linear(x, dequantize(weight, torch.float32), bias).to(dtype)
        if spec.kind in _PLAIN_LINEAR:
            return _plain_linear(x, dequantize(weight), bias)
        if spec.kind == "int8" and 0 < spec.shape[-1] <= spec.block_size[-1]:
            y = F.linear(x, _codes(weight, dtype)) * _row_scale(weight).to(dtype)
        else:
            y = F.linear(x, dequantize(weight).to(dtype))
        return y if bias is None else (y + bias).to(dtype)


def dequantize(weight: Weight, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The plain tensor a weight stands for, in its own dtype unless another is given."""
    dtype = torch_dtype(weight.spec.dtype) if dtype is None else dtype
    return _DEQUANTIZE[weight.spec.kind](weight, dtype)


def activated(x: torch.Tensor, weight: Weight) -> tuple[torch.Tensor, bool]:
    """The activation as it meets the weight: scaled, quantized and dequantized as the weight says.

    Returns:
        The same shape, in the dtype of `x`, or in float32 where it has been quantized, but for an
        intx weight's dynamic int8; and whether it has been quantized.
    """
    dtype, activation, parts = x.dtype, weight.spec.activation, weight.parts
    if is_met_as_it_is(weight):
        return x, False
    x = prescaled(x, weight.spec, parts)
    if activation is None or leaves_alone(activation, x):
        return x.to(dtype), False
    if _is_narrow(weight.spec):
        return fake_quantize_narrow(x.to(dtype), activation), True
    scale = parts.get("act_scale", parts.get("act_per_tensor_scale"))
    return fake_quantize(x, activation, scale, parts.get("act_zero_point")), True


def is_met_as_it_is(weight: Weight) -> bool:
    """Whether the weight asks nothing of its layer's activation."""
    return weight.spec.activation is None and "act_pre_scale" not in weight.parts


def _is_narrow(spec: Spec) -> bool:
    """Whether everything is computed in the dtype of the activation."""
    if spec.kind != "intx" or spec.activation is None:
        return False
    return format_of(spec.activation) == "int8" and not spec.activation.static


def _plain_linear(
    x: torch.Tensor, w: torch.Tensor, bias: torch.Tensor | None = None
) -> torch.Tensor:
    """`F.linear` in the dtype of `x`."""
    return F.linear(x, w.to(x.dtype), None if bias is None else bias.to(x.dtype))


def _float8(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    return dequantize_float8(
        parts["qdata"], parts["scale"], block_size=spec.block_size, dtype=dtype
    )


def _int8(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    return dequantize_int8(
        parts["qdata"],
        parts["scale"],
        parts.get("zero_point"),
        block_size=spec.block_size,
        dtype=dtype,
    )


def _by_zero_domain(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    dequantize_codes: Callable[..., torch.Tensor] = dequantize_intx
    if spec.kind == "int4":
        dequantize_codes = partial(dequantize_int4, narrow_arithmetic=spec.narrow_arithmetic)
    return dequantize_codes(
        parts["qdata"],
        parts["scale"],
        parts.get("zero_point"),
        zero_domain=spec.zero_domain,
        block_size=spec.block_size,
        dtype=dtype,
        group_index=parts.get("group_index"),
    )


def _mx(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    return dequantize_mx(
        parts["qdata"],
        parts["scale"],
        element=spec.element or "",
        block_size=spec.block_size,
        dtype=dtype,
    )


def _nvfp4(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    spec, parts = weight.spec, weight.parts
    return dequantize_nvfp4(
        parts["qdata"],
        parts["scale"],
        parts.get("per_tensor_scale"),
        scale_op=spec.scale_op,
        scale_dtype=torch_dtype(spec.scale_dtype),
        block_size=spec.block_size,
        dtype=dtype,
    )


_DEQUANTIZE: dict[str, Callable[[Weight, torch.dtype], torch.Tensor]] = {
    "float8": _float8,
    "int8": _int8,
    "int4": _by_zero_domain,
    "intx": _by_zero_domain,
    "mx": _mx,
    "nvfp4": _nvfp4,
}


def _codes(weight: Weight, dtype: torch.dtype) -> torch.Tensor:
    """int8 codes less their zero points, [N, K]; integers to ±255, which bfloat16 holds exactly."""
    codes, zero_point = weight.parts["qdata"].to(dtype), weight.parts.get("zero_point")
    if zero_point is None:
        return codes
    return codes - expand(zero_point, weight.spec.block_size, weight.spec.shape).to(dtype)


def _row_scale(weight: Weight) -> torch.Tensor:
    """The scale of each output, [N] or [1]."""
    return expand(weight.parts["scale"], weight.spec.block_size, weight.spec.shape).flatten()
