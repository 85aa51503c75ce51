"""The layer as one operator of torch, which torch.compile and torch.export keep as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels.prepared import PreparedWeights
from aoserial.kernels.reference import dequantize
from aoserial.kernels.registry import BACKENDS
from aoserial.kernels.spec import Spec, Weight
from aoserial.kernels.text import spec_of

PREPARED = PreparedWeights(BACKENDS)


@torch.library.custom_op("aoserial::linear", mutates_args=())
def linear_operator(
    x: torch.Tensor, parts: list[torch.Tensor], weight: str, bias: torch.Tensor | None
) -> torch.Tensor:
    """`F.linear` by a quantized weight; packs it on the first run.

    Args:
        x: [..., K], floating point.
        parts: of the weight, in the order of its spec's.
        weight: its spec, by `spec_text`.
        bias: [N].
    """
    return PREPARED.of(weight, _weight(parts, weight)).linear(x, bias)


@linear_operator.register_fake
def _shape(
    x: torch.Tensor, parts: list[torch.Tensor], weight: str, bias: torch.Tensor | None
) -> torch.Tensor:
    del parts, bias
    return x.new_empty((*x.shape[:-1], spec_of(weight).shape[-2]))


_BIAS = 3  # its place among the arguments of a layer's operator


def keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keeps of a layer's arguments (x, parts, text of the weight, bias) what its gradient needs."""
    del output
    x, parts, ctx.weight, bias = inputs
    ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*parts)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, ...]:
    parts = list(ctx.saved_tensors)
    spec = spec_of(ctx.weight)
    of_x, of_bias = layer_gradient(ctx, grad, lambda: _weight(parts, ctx.weight), spec)
    return of_x, [None] * len(parts), None, of_bias


def layer_gradient(
    ctx: Any, grad: torch.Tensor, weight: Callable[[], Weight], spec: Spec
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """The gradients of a layer's activation and bias; codes have none.

    Args:
        ctx: what `keep_for_gradient` kept.
        grad: [..., N].
        weight: gives the canonical weight.

    Raises:
        UnsupportedOperationError: the activation is quantized, and rounding has no gradient.
    """
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        if spec.activation is not None:
            raise UnsupportedOperationError(
                "a layer that quantizes its activation has no gradient; detach() the activation, "
                "or train with the weight's dequantize()"
            )
        held = weight()
        of_x = grad @ dequantize(held).to(grad.dtype)
        if "act_pre_scale" in spec.parts:
            pre_scale = held.parts["act_pre_scale"].to(grad.dtype)
            divides = spec.act_pre_scale_op == "divide"
            of_x = of_x / pre_scale if divides else of_x * pre_scale
        of_x = of_x.to(ctx.dtype)
    if ctx.bias_dtype is not None and ctx.needs_input_grad[_BIAS]:
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(dim=0).to(ctx.bias_dtype)
    return of_x, of_bias


linear_operator.register_autograd(_gradient, setup_context=keep_for_gradient)


def _weight(parts: list[torch.Tensor], text: str) -> Weight:
    spec: Spec = spec_of(text)
    return Weight(spec=spec, parts=dict(zip(spec.parts, parts, strict=True)))
