"""What every `VersionedTensor` does under torch's operators: computing, copying, moving.

Slices are in `views`. An operator that is in neither raises `UnsupportedOperationError`, which
names it. Which operators torch calls for what was observed: a parameter and a state dict detach,
loading into a module copies, moving one calls `_to_copy` and swaps, `to_empty` asks `empty_like`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch.utils._python_dispatch import return_and_correct_aliasing

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.transposed import Transposed

aten = torch.ops.aten
_Function = TypeVar("_Function", bound=Callable[..., Any])


def operator(*aten_ops: Any) -> Callable[[_Function], _Function]:
    """Decorates a function of an aten operator's own arguments."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements(aten_ops)(
            lambda _func, _types, args, kwargs: function(*args, **kwargs)
        )
        return function

    return enter


def view_operator(*aten_ops: Any) -> Callable[[_Function], _Function]:
    """The same for a view: torch is told that the result shares the storage of the argument."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements(aten_ops)(
            lambda func, _types, args, kwargs: return_and_correct_aliasing(  # type: ignore[no-untyped-call]
                func, args, kwargs, function(*args, **kwargs)
            )
        )
        return function

    return enter


def torch_function(*functions: Any) -> Callable[[_Function], _Function]:
    """Decorates a function of the own arguments of a torch function."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements_torch_function(functions)(
            lambda _func, _types, args, kwargs: function(*args, **kwargs)
        )
        return function

    return enter


# -- computing ----------------------------------------------------------------------------------


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
    return _permute(weight, [1, 0] if (dim0 - dim1) % 2 else [])


@operator(aten.permute.default)  # what `.T` and `.mT` call
def _permute(weight: VersionedTensor, dims: list[int]) -> torch.Tensor:
    if weight.dim() == 2 and [dim % 2 for dim in dims] == [1, 0]:
        return Transposed(weight)
    raise UnsupportedOperationError(
        f"the dimensions of {type(weight).__name__} have their places; only a weight of two "
        f"dimensions can be transposed"
    )


@operator(aten.mm.default)
def _mm(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Not a linear layer: of a gradient with the weight, or by the writer's own formula."""
    return torch.mm(_plain(left), _plain(right))


@torch_function(F.embedding)
def _embedding(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    *args: Any,
    **kwargs: Any,
) -> torch.Tensor:
    if max_norm is not None:
        raise UnsupportedOperationError("max_norm changes the weight; a quantized one cannot be")
    return F.embedding(input, _plain(weight), padding_idx, None, *args, **kwargs)


@operator(aten.embedding.default)
def _aten_embedding(weight: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    return aten.embedding.default(_plain(weight), *args, **kwargs)


@torch_function(torch.dequantize, torch.Tensor.dequantize)
def _dequantize(tensor: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    return tensor.dequantize(*args, **kwargs)


def _plain(weight: torch.Tensor) -> torch.Tensor:
    return weight.dequantize() if isinstance(weight, VersionedTensor) else weight


# -- the same tensor again: parameters, state dicts, copies -------------------------------------


@view_operator(aten.detach.default)
def _detach(tensor: VersionedTensor) -> VersionedTensor:
    return tensor._apply_fn_to_data(aten.detach.default, strides=tensor.stride())


@view_operator(aten.alias.default)
def _alias(tensor: VersionedTensor) -> VersionedTensor:
    return tensor._apply_fn_to_data(aten.alias.default, strides=tensor.stride())


@view_operator(aten.as_strided.default)  # how a compiled graph gives back an alias of its input
def _as_strided(
    tensor: VersionedTensor, size: list[int], stride: list[int], storage_offset: int | None = None
) -> VersionedTensor:
    same = list(size) == list(tensor.shape) and list(stride) == list(tensor.stride())
    if not same or storage_offset not in (None, tensor.storage_offset()):
        raise UnsupportedOperationError(
            f"as_strided cannot reshape a {type(tensor).__name__}; slice it, or dequantize() it"
        )
    return _alias(tensor)


@operator(aten.clone.default)
def _clone(
    tensor: VersionedTensor, *, memory_format: torch.memory_format | None = None
) -> VersionedTensor:
    return tensor._apply_fn_to_data(
        lambda part: aten.clone.default(part, memory_format=memory_format)
    )


@torch_function(torch.Tensor.contiguous)
def _contiguous(
    tensor: VersionedTensor, memory_format: torch.memory_format = torch.contiguous_format
) -> VersionedTensor:
    parts = [getattr(tensor, name) for name in tensor.part_names()]
    if all(part.is_contiguous() for part in (*parts, tensor)):
        return tensor
    return tensor._apply_fn_to_data(lambda part: part.contiguous(memory_format=memory_format))


@operator(aten.copy_.default)
def _copy(target: torch.Tensor, source: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    if not isinstance(target, VersionedTensor):
        raise UnsupportedOperationError(
            f"cannot copy a {type(source).__name__} into a plain tensor: copy its dequantize(), or "
            f"load with assign=True to put it in the plain tensor's place"
        )
    if not isinstance(source, VersionedTensor):
        raise UnsupportedOperationError(
            f"cannot copy a plain tensor into a {type(target).__name__}: quantize it first, "
            f"or load with assign=True to put it in the quantized tensor's place"
        )
    if not target._same_metadata(source):
        raise UnsupportedOperationError(
            f"cannot copy between tensors that differ in more than their values, {source!r} into "
            f"{target!r}; load with assign=True to replace the one by the other"
        )
    for name in target.part_names():
        getattr(target, name).copy_(getattr(source, name), non_blocking=non_blocking)
    return target


@torch_function(torch._has_compatible_shallow_copy_type)  # asked for every parameter that moves
def _compatible(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    return type(tensor) is type(other) and tensor.shape == other.shape


# -- devices and dtypes -------------------------------------------------------------------------


@operator(aten._to_copy.default)
def _to_copy(
    tensor: VersionedTensor, *, pin_memory: bool = False, **kwargs: Any
) -> VersionedTensor:
    """Parts keep their dtypes: a new dtype is the logical one, that which `dequantize` returns."""
    to = tensor._get_to_kwargs(**kwargs)

    def move(part: torch.Tensor) -> torch.Tensor:
        moved = part.to(to["device"], non_blocking=to["non_blocking"], copy=True)
        return moved.pin_memory() if pin_memory else moved

    return tensor._apply_fn_to_data(move, dtype=_logical(tensor, to["dtype"]))


@operator(aten.empty_like.default)
def _empty_like(
    tensor: VersionedTensor, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> VersionedTensor:
    return tensor._apply_fn_to_data(
        lambda part: torch.empty_like(part, **kwargs), dtype=_logical(tensor, dtype)
    )


@operator(aten.is_pinned.default)
def _is_pinned(tensor: VersionedTensor, device: Any = None) -> bool:
    parts = (getattr(tensor, name) for name in tensor.part_names())
    return all(aten.is_pinned.default(part, device) for part in parts)


@operator(aten._pin_memory.default)
def _pin_memory(tensor: VersionedTensor, device: Any = None) -> VersionedTensor:
    return tensor._apply_fn_to_data(lambda part: aten._pin_memory.default(part, device))


def _logical(tensor: VersionedTensor, dtype: torch.dtype | None) -> torch.dtype:
    if dtype is None or dtype == tensor.dtype:
        return tensor.dtype
    if not dtype.is_floating_point or dtype.itemsize < 2:
        raise UnsupportedOperationError(
            f"{type(tensor).__name__} stands for floating-point values and cannot be {dtype}; "
            f"dequantize() it first"
        )
    return dtype
