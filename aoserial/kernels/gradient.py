"""The gradient of a layer: that of its activation and its bias. Codes have none."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels.reference import dequantize
from aoserial.kernels.spec import Weight

Run = Callable[[torch.Tensor, "torch.Tensor | None"], torch.Tensor]


def with_gradient(
    run: Run, weight: Callable[[], Weight], x: torch.Tensor, bias: torch.Tensor | None
) -> torch.Tensor:
    """`run(x, bias)`, with a gradient where one is asked for.

    Args:
        run: a backend's layer.
        weight: gives the canonical weight, for the gradient.
    """
    if torch.is_grad_enabled() and (x.requires_grad or (bias is not None and bias.requires_grad)):
        y: torch.Tensor = _Layer.apply(x, bias, run, weight)  # type: ignore[no-untyped-call]
        return y
    return run(x, bias)


def layer_gradient(
    grad: torch.Tensor,
    weight: Callable[[], Weight],
    dtype: torch.dtype | None,
    bias_dtype: torch.dtype | None,
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of an activation and a bias, each in its dtype; None where that is None.

    Args:
        grad: [..., N].
        weight: gives the canonical weight.

    Raises:
        UnsupportedOperationError: the activation is quantized, and rounding has no gradient.
    """
    of_x = of_bias = None
    if dtype is not None:
        held = weight()
        spec = held.spec
        if spec.activation is not None:
            raise UnsupportedOperationError(
                "a layer that quantizes its activation has no gradient; detach() the activation, "
                "or train with the weight's dequantize()"
            )
        of_x = grad @ dequantize(held).to(grad.dtype)
        if "act_pre_scale" in spec.parts:
            pre_scale = held.parts["act_pre_scale"].to(grad.dtype)
            divides = spec.act_pre_scale_op == "divide"
            of_x = of_x / pre_scale if divides else of_x * pre_scale
        of_x = of_x.to(dtype)
    if bias_dtype is not None:
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(dim=0).to(bias_dtype)
    return of_x, of_bias


class _Layer(torch.autograd.Function):
    """`run(x, bias)` of `with_gradient`."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        bias: torch.Tensor | None,
        run: Run,
        weight: Callable[[], Weight],
    ) -> torch.Tensor:
        ctx.weight = weight
        ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
        return run(x, bias)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        dtype = ctx.dtype if ctx.needs_input_grad[0] else None
        bias_dtype = ctx.bias_dtype if ctx.needs_input_grad[1] else None
        return (*layer_gradient(grads[0], ctx.weight, dtype, bias_dtype), None, None)
