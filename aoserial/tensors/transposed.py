"""A weight under `.t()`, on its way into a matrix product. Never stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import make_wrapper

aten = torch.ops.aten


class Transposed(torch.Tensor):
    """[K, N]: what `x @ w.t()` multiplies by, and `F.linear` itself where torch functions are off.

    It keeps the weight as it is, so that the product is the weight's own `linear`, with whatever it
    asks of its activation. It has no other operator than products, and `t()`, which gives the
    weight back.
    """

    weight: VersionedTensor

    def __new__(cls, weight: VersionedTensor) -> Self:
        rows, columns = weight.stride()
        tensor = make_wrapper(
            cls,
            (weight.shape[1], weight.shape[0]),
            strides=(columns, rows),
            dtype=weight.dtype,
            device=weight.device,
        )
        tensor.weight = weight  # type: ignore[attr-defined]
        return tensor  # type: ignore[return-value]

    def __init__(self, weight: VersionedTensor) -> None:
        """Does nothing: `__new__` keeps the weight."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        handler = _HANDLERS.get(func)
        if handler is None:
            raise UnsupportedOperationError(f"a transposed quantized tensor has no {func}")
        return handler(*args, **(kwargs or {}))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        del tensor_contents
        return f"{self.weight!r}.t()"


def _mm(x: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
    if not isinstance(transposed, Transposed) or isinstance(x, Transposed):
        raise UnsupportedOperationError("a quantized weight is multiplied from the left: x @ w.t()")
    return transposed.weight.linear(x)


def _addmm(
    bias: torch.Tensor,
    x: torch.Tensor,
    transposed: torch.Tensor,
    *,
    beta: float = 1,
    alpha: float = 1,
) -> torch.Tensor:
    if (beta, alpha) != (1, 1) or bias.dim() != 1 or not isinstance(transposed, Transposed):
        return beta * bias + alpha * _mm(x, transposed)
    return transposed.weight.linear(x, bias)


def _back(transposed: Transposed, *dims: Any) -> Any:
    del dims
    return aten.alias.default(transposed.weight)


_HANDLERS: dict[Any, Callable[..., Any]] = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.t.default: _back,
    aten.transpose.int: _back,
    aten.permute.default: _back,
    aten.detach.default: lambda transposed: Transposed(transposed.weight.detach()),
    aten.alias.default: lambda transposed: Transposed(aten.alias.default(transposed.weight)),
}
