"""The layer as one operator of torch, which torch.compile and torch.export keep as it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from aoserial.kernels.autocast import without_autocast
from aoserial.kernels.gradient import layer_gradient
from aoserial.kernels.prepared import PreparedWeights
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
    return without_autocast(PREPARED.of(weight, _weight(parts, weight)).run, x, bias)


@linear_operator.register_fake
def _shape(
    x: torch.Tensor, parts: list[torch.Tensor], weight: str, bias: torch.Tensor | None
) -> torch.Tensor:
    del parts, bias
    return x.new_empty((*x.shape[:-1], spec_of(weight).shape[-2]))


def keep_for_gradient(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
    """Keeps of an operator's arguments (x, parts, text, bias) what its gradient needs."""
    del output
    x, parts, ctx.weight, bias = inputs
    ctx.dtype, ctx.bias_dtype = x.dtype, None if bias is None else bias.dtype
    ctx.save_for_backward(*parts)


def operator_gradient(
    ctx: Any, grad: torch.Tensor, weight: Callable[[list[torch.Tensor], str], Weight]
) -> tuple[Any, ...]:
    """The gradients of an operator's arguments.

    Args:
        ctx: what `keep_for_gradient` kept.
        weight: makes the canonical weight of the parts and the text.
    """
    parts = list(ctx.saved_tensors)
    dtype = ctx.dtype if ctx.needs_input_grad[0] else None
    bias_dtype = ctx.bias_dtype if ctx.needs_input_grad[3] else None
    of_x, of_bias = layer_gradient(grad, lambda: weight(parts, ctx.weight), dtype, bias_dtype)
    return of_x, [None] * len(parts), None, of_bias


linear_operator.register_autograd(
    lambda ctx, grad: operator_gradient(ctx, grad, _weight), setup_context=keep_for_gradient
)


def _weight(parts: list[torch.Tensor], text: str) -> Weight:
    spec: Spec = spec_of(text)
    return Weight(spec=spec, parts=dict(zip(spec.parts, parts, strict=True)))
