"""The gradient of a layer: that of its activation and its bias. Codes have none."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch._C import _is_any_autocast_enabled
from torch.autograd import forward_ad

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels.autocast import as_autocast, without_autocast
from aoserial.kernels.backend import Run
from aoserial.kernels.reference import dequantize
from aoserial.kernels.spec import Weight


def eager_layer(
    run: Run,
    weight: Callable[[], Weight],
    x: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    parts: Collection[torch.Tensor],
) -> torch.Tensor:
    """`run(x, bias)` as torch runs a layer: in autocast's dtype, with a gradient if one is asked.

    Args:
        run: a backend's layer.
        weight: gives the canonical weight, for the gradient.
        parts: what it is made of, which may not be written to before the gradient is asked for.
    """
    autocast = _is_any_autocast_enabled()
    if autocast:
        x = as_autocast(x)
    asked = x.requires_grad or (bias is not None and bias.requires_grad)
    if (asked and torch.is_grad_enabled()) or forward_ad._current_level >= 0:
        y: torch.Tensor = _Layer.apply(x, bias, run, weight, *parts)  # type: ignore[no-untyped-call]
        return y
    return without_autocast(run, x, bias) if autocast else run(x, bias)


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
    """`run(x, bias)` of `eager_layer`."""

    @staticmethod
    def forward(
        x: torch.Tensor,
        bias: torch.Tensor | None,
        run: Run,
        weight: Callable[[], Weight],
        *parts: torch.Tensor,
    ) -> torch.Tensor:
        del weight, parts
        return without_autocast(run, x, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        del output
        x, bias, _, ctx.weight, *parts = inputs
        # for torch to see whether they are written to; it saves none that is of inference mode
        ctx.save_for_backward(*(part for part in parts if not part.is_inference()))
        ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype

    @staticmethod
    def jvp(*_: Any) -> torch.Tensor:
        """Refuses, since a backend's operators would lose what forward mode carries along."""
        raise UnsupportedOperationError(
            "a layer by a quantized weight has no forward-mode derivative; use reverse mode, or "
            "F.linear with the weight's dequantize()"
        )

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        dtype = ctx.dtype if ctx.needs_input_grad[0] else None
        bias_dtype = ctx.bias_dtype if ctx.needs_input_grad[1] else None
        _ = ctx.saved_tensors  # raises where one was written to
        found = layer_gradient(grads[0], ctx.weight, dtype, bias_dtype)
        return (*found, *[None] * (len(ctx.needs_input_grad) - len(found)))
