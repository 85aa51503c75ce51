"""A weight under `.t()` or `.mT`, on its way into a matrix product. Never stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.reshaped import Reshaped

aten = torch.ops.aten


class Transposed(Reshaped):
    """[..., K, N]: what `x @ w.mT` multiplies by, and `F.linear` too where torch functions are off.

    It keeps the weight as it is, so that the product is the weight's own `linear`, with whatever it
    asks of its activation; a stack's is that of each of its weights. It has no other operator than
    products, and what swaps its dimensions again, which gives the weight back.
    """

    called = ".mT"
    handlers: ClassVar[Mapping[Any, Callable[..., Any]]]

    @classmethod
    def of(cls, weight: VersionedTensor) -> Transposed:
        """The view of a weight of two dimensions or more with the last two swapped."""
        (*lead, rows, columns), (*steps, row_step, column_step) = weight.shape, weight.stride()
        return cls(weight, (*lead, columns, rows), (*steps, column_step, row_step))


def swaps_last(rank: int, dims: Sequence[int]) -> bool:
    """Whether a permutation swaps the last two dimensions and leaves the others."""
    last = [rank - 1, rank - 2]
    return rank >= 2 and [dim % rank for dim in dims] == [*range(rank - 2), *last]


def transposition(rank: int, dim0: int, dim1: int) -> list[int]:
    """The permutation that swaps two dimensions."""
    dims = list(range(rank))
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return dims


def _mm(x: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
    if not isinstance(transposed, Transposed) or isinstance(x, Transposed):
        raise UnsupportedOperationError("a quantized weight is multiplied from the left: x @ w.mT")
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


def _bmm(x: torch.Tensor, transposed: torch.Tensor) -> torch.Tensor:
    """x [E, M, K] by a stack [E, K, N]: each by its own."""
    if not isinstance(transposed, Transposed) or isinstance(x, Transposed):
        raise UnsupportedOperationError("a quantized stack is multiplied from the left: x @ w.mT")
    if len(x) != len(transposed):
        raise UnsupportedOperationError(f"{len(x)} activations for a stack of {len(transposed)}")
    return _each(transposed.weight, x.unbind(0), torch.stack)


def _grouped_mm(
    x: torch.Tensor,
    transposed: torch.Tensor,
    offs: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    out_dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """x [T, K], its rows in the order of the stack; offs [E]: where those of each end.

    Rows behind the last end give zeros.
    """
    if not isinstance(transposed, Transposed) or transposed.dim() != 3 or isinstance(x, Transposed):
        raise UnsupportedOperationError("grouped_mm takes a quantized stack as w.mT, on the right")
    if offs is None or x.dim() != 2 or bias is not None or out_dtype not in (None, x.dtype):
        raise UnsupportedOperationError(
            "grouped_mm by a quantized stack takes an activation of two dimensions with offs, and "
            "no bias or out_dtype"
        )
    *ends, last = offs.tolist()
    if len(offs) != len(transposed) or last > len(x):
        raise UnsupportedOperationError(
            f"offs has {len(offs)} ends up to {last}, for {len(x)} rows and {len(transposed)} "
            f"weights"
        )
    found = _each(transposed.weight, x[:last].tensor_split(ends), torch.cat)
    return F.pad(found, (0, 0, 0, len(x) - last))


def _each(
    stack: VersionedTensor,
    xs: Sequence[torch.Tensor],
    put_together: Callable[[list[torch.Tensor]], torch.Tensor],
) -> torch.Tensor:
    weights = stack.matrices()
    return put_together([weight.linear(x) for weight, x in zip(weights, xs, strict=True)])


def _permute(transposed: Transposed, dims: Sequence[int]) -> torch.Tensor:
    if not swaps_last(transposed.dim(), dims):
        raise UnsupportedOperationError(
            f"the dimensions of a quantized tensor have their places: {list(dims)} is not the "
            f"swap of the last two"
        )
    return aten.alias.default(transposed.weight)  # type: ignore[no-any-return]


def _transpose(transposed: Transposed, dim0: int, dim1: int) -> torch.Tensor:
    return _permute(transposed, transposition(transposed.dim(), dim0, dim1))


def _expand(transposed: Transposed, size: Sequence[int], *, implicit: bool = False) -> torch.Tensor:
    """By nothing: what matmul asks of a stack before it multiplies."""
    del implicit
    if list(size) != list(transposed.shape):
        raise UnsupportedOperationError(
            f"a quantized tensor of {list(transposed.shape)} is not expanded to {list(size)}"
        )
    return transposed.with_weight(aten.alias.default(transposed.weight))


Transposed.handlers = {
    aten.mm.default: _mm,
    aten.addmm.default: _addmm,
    aten.bmm.default: _bmm,
    aten._grouped_mm.default: _grouped_mm,
    aten.t.default: lambda transposed: _permute(transposed, [1, 0]),
    aten.transpose.int: _transpose,
    aten.permute.default: _permute,
    aten.expand.default: _expand,
}
