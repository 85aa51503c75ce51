"""The layer as one operator of torch, which torch.compile and torch.export keep as it is."""

from __future__ import annotations

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


def _keep(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    del output
    x, parts, ctx.weight, bias = inputs
    ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*parts)


def _gradient(ctx: Any, grad: torch.Tensor) -> tuple[Any, list[None], None, Any]:
    """That of the activation and the bias; codes have none.

    Raises:
        UnsupportedOperationError: the activation is quantized, and rounding has no gradient.
    """
    spec = spec_of(ctx.weight)
    parts = list(ctx.saved_tensors)
    of_x = of_bias = None
    if ctx.needs_input_grad[0]:
        if spec.activation is not None:
            raise UnsupportedOperationError(
                "a layer that quantizes its activation has no gradient; detach() the activation, "
                "or train with the weight's dequantize()"
            )
        of_x = grad @ dequantize(_weight(parts, ctx.weight)).to(grad.dtype)
        if "act_pre_scale" in spec.parts:
            pre_scale = parts[spec.parts.index("act_pre_scale")].to(grad.dtype)
            divides = spec.act_pre_scale_op == "divide"
            of_x = of_x / pre_scale if divides else of_x * pre_scale
        of_x = of_x.to(ctx.dtype)
    if ctx.bias_dtype is not None and ctx.needs_input_grad[3]:
        of_bias = grad.reshape(-1, grad.shape[-1]).sum(dim=0).to(ctx.bias_dtype)
    return of_x, [None] * len(parts), None, of_bias


linear_operator.register_autograd(_gradient, setup_context=_keep)


def _weight(parts: list[torch.Tensor], text: str) -> Weight:
    spec: Spec = spec_of(text)
    return Weight(spec=spec, parts=dict(zip(spec.parts, parts, strict=True)))
