"""Computing with quantized weights: products, which ask the weight itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.operators import operator, plain, torch_function
from aoserial.tensors.transposed import Transposed, swaps_last, transposition

aten = torch.ops.aten


@torch_function(F.linear)
@operator(aten.linear.default)  # reached in inference mode, below torch functions
def _linear(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    if isinstance(input, VersionedTensor) or not isinstance(weight, VersionedTensor):
        raise UnsupportedOperationError(
            "linear takes a quantized tensor as its weight only; dequantize() the others"
        )
    return weight.linear(input, bias)


@operator(aten.t.default)
def _t(weight: VersionedTensor) -> torch.Tensor:
    return _permute(weight, [1, 0])


@operator(aten.transpose.int)
def _transpose(weight: VersionedTensor, dim0: int, dim1: int) -> torch.Tensor:
    return _permute(weight, transposition(weight.dim(), dim0, dim1))


@operator(aten.permute.default)  # what `.T` and `.mT` call
def _permute(weight: VersionedTensor, dims: Sequence[int]) -> torch.Tensor:
    if not swaps_last(weight.dim(), dims):
        raise UnsupportedOperationError(
            f"the dimensions of {type(weight).__name__} have their places; only the last two can "
            f"be swapped, for a product"
        )
    return Transposed.of(weight)


@operator(aten.mm.default)
def _mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _plain_product(torch.mm, left, right)


@operator(aten.bmm.default)
def _bmm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return _plain_product(torch.bmm, left, right)


def _plain_product(
    product: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    left: torch.Tensor,
    right: torch.Tensor,
) -> torch.Tensor:
    """With the numbers a weight stands for: the gradient of a layer, or the writer's own formula.

    Not a layer, which is `x @ w.mT`. What a weight asks of the activation of its layer has no place
    here, so a weight that asks something is refused.
    """
    for weight in (left, right):
        if isinstance(weight, VersionedTensor) and asks_of_activation(weight):
            raise UnsupportedOperationError(
                f"a {type(weight).__name__} that quantizes or scales its activation is multiplied "
                f"as F.linear(x, w) or x @ w.mT, without gradients"
            )
    return product(plain(left), plain(right))


def asks_of_activation(weight: VersionedTensor) -> bool:
    """Whether a layer of this weight quantizes or scales its activation first."""
    seen = weight.kernel_weight()
    if seen is None:
        return False
    return seen.spec.activation is not None or any(name.startswith("act_") for name in seen.parts)


@torch_function(torch.dequantize, torch.Tensor.dequantize)
def _dequantize(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.dequantize(*args, **kwargs)
