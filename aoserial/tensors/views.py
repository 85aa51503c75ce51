"""Slices of quantized tensors: true views, whose parts share the storage of the parts they view."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors import geometry
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import CLASSES
from aoserial.tensors.layout import Layout, follows_leading, leading
from aoserial.tensors.operators import lend, operator, view_of, view_operator
from aoserial.tensors.reshaped import Flat, full_size

aten = torch.ops.aten


@view_operator(aten.slice.Tensor)  # also what narrow, w[a:b] and w[:, a:b] call
def _slice(
    tensor: VersionedTensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> VersionedTensor:
    if step != 1:
        raise UnsupportedOperationError(f"a quantized tensor is sliced in steps of 1, not {step}")
    dim = geometry.normalize(dim, tensor.dim())
    first, last = geometry.clamp(start, end, tensor.shape[dim])
    return _span(tensor, tensor.part_layout(), dim, first, last)


@view_operator(aten.split.Tensor)  # also what chunk calls
def _split(tensor: VersionedTensor, split_size: int, dim: int = 0) -> list[VersionedTensor]:
    dim = geometry.normalize(dim, tensor.dim())
    length = tensor.shape[dim]
    starts = range(0, length, split_size) if length else (0,)
    layout = tensor.part_layout()
    return [_span(tensor, layout, dim, start, min(start + split_size, length)) for start in starts]


@view_operator(aten.split_with_sizes.default)
def _split_with_sizes(
    tensor: VersionedTensor, split_sizes: Sequence[int], dim: int = 0
) -> list[VersionedTensor]:
    dim = geometry.normalize(dim, tensor.dim())
    stops = list(accumulate(split_sizes))
    if stops[-1:] != [tensor.shape[dim]]:
        raise ValueError(f"sizes {list(split_sizes)} do not add up to {tensor.shape[dim]}")
    layout = tensor.part_layout()
    return [
        _span(tensor, layout, dim, stop - size, stop)
        for size, stop in zip(split_sizes, stops, strict=True)
    ]


@view_operator(aten.select.int)
def _select(tensor: VersionedTensor, dim: int, index: int) -> VersionedTensor:
    """One of a stack, as `experts[3]`."""
    dim = geometry.normalize(dim, tensor.dim())
    length = tensor.shape[dim]
    if not -length <= index < length:
        raise IndexError(f"index {index} is out of range for a dimension of {length}")
    _check_leading(tensor, dim, tensor.dim())
    return _taken(tensor, tensor.part_layout(), dim, index % length)


@view_operator(aten.unbind.int)  # also what `for w in stack` calls
def _unbind(tensor: VersionedTensor, dim: int = 0) -> list[VersionedTensor]:
    dim = geometry.normalize(dim, tensor.dim())
    _check_leading(tensor, dim, tensor.dim())
    layout = tensor.part_layout()
    return [_taken(tensor, layout, dim, index) for index in range(tensor.shape[dim])]


@view_operator(aten.squeeze.dim)
def _squeeze(tensor: VersionedTensor, dim: int) -> VersionedTensor:
    """The one of a stack of one."""
    dim = geometry.normalize(dim, tensor.dim())
    if tensor.shape[dim] != 1:
        return aten.alias.default(tensor)  # type: ignore[no-any-return]
    _check_leading(tensor, dim, tensor.dim())
    return _taken(tensor, tensor.part_layout(), dim, 0)


@view_operator(aten.squeeze.default)
def _squeeze_all(tensor: VersionedTensor) -> VersionedTensor:
    for dim in reversed(range(tensor.dim())):
        tensor = _squeeze(tensor, dim)
    return tensor


@view_operator(aten.unsqueeze.default)
def _unsqueeze(tensor: VersionedTensor, dim: int) -> VersionedTensor:
    """A stack of one."""
    dim = geometry.normalize(dim, tensor.dim() + 1)
    _check_leading(tensor, dim, tensor.dim() + 1)
    step = tensor.stride()[dim] * tensor.shape[dim]
    return _restack(
        tensor,
        lambda part: view_of(part, aten.unsqueeze.default, dim),
        shape=_with(tensor.shape, dim, 1),
        strides=_with(tensor.stride(), dim, step),
        block=lambda sizes: _with(sizes, dim, 1),
    )


@operator(aten.view.default)  # of the same shape: how DTensor takes a local tensor
def _view(tensor: VersionedTensor, size: Sequence[int]) -> torch.Tensor:
    if full_size(size, tensor.numel()) == list(tensor.shape):
        return aten.alias.default(tensor)  # type: ignore[no-any-return]
    if list(size) in ([-1], [tensor.numel()]):
        return Flat.of(tensor)
    raise UnsupportedOperationError(
        f"a {type(tensor).__name__} of shape {list(tensor.shape)} has no view of shape "
        f"{list(size)}; slice it, or dequantize() it"
    )


def _span(
    tensor: VersionedTensor, layout: Layout, dim: int, start: int, stop: int
) -> VersionedTensor:
    """`tensor[start:stop]` along `dim`, all of them in range.

    Args:
        layout: the tensor's, worked out once for all that are cut from it.

    Raises:
        BlockCutError: a bound inside a quantization block.
    """
    cut = geometry.cut(layout, dim, start, stop)
    parts = {name: getattr(tensor, name) for name in tensor.part_names()}
    for name, span in cut.parts.items():
        parts[name] = view_of(parts[name], aten.slice.Tensor, *span)
    shape = _with(_without(tensor.shape, dim), dim, stop - start)
    view = tensor.with_parts(parts, shape=shape, strides=tensor.stride(), attributes=cut.attributes)
    return lend(view, tensor._borrowed | cut.shared)


def _taken(tensor: VersionedTensor, layout: Layout, dim: int, index: int) -> VersionedTensor:
    """One along a leading dimension, which goes away."""
    return _restack(
        _span(tensor, layout, dim, index, index + 1),
        lambda part: view_of(part, aten.select.int, dim, 0),
        shape=_without(tensor.shape, dim),
        strides=_without(tensor.stride(), dim),
        block=lambda sizes: _without(sizes, dim),
    )


def _check_leading(tensor: VersionedTensor, dim: int, rank: int) -> None:
    """Raises unless `dim` is in front of the dimensions that the schema names."""
    schema = CLASSES.tensor(type(tensor)).schema
    if dim >= leading(schema, rank):
        named = ", ".join(schema.dims or ()) or "no dims"
        raise UnsupportedOperationError(
            f"dimension {dim} of {schema} ({named}) cannot be added or removed, only those of a "
            f"stack in front; slice it, or dequantize() it"
        )


def _restack(
    tensor: VersionedTensor,
    change: Callable[[torch.Tensor], torch.Tensor],
    *,
    shape: Sequence[int],
    strides: Sequence[int],
    block: Callable[[Sequence[int]], Sequence[int]],
) -> VersionedTensor:
    """Adds or removes a leading dimension of length one in all parts that have it."""
    parts = {name: getattr(tensor, name) for name in tensor.part_names()}
    for name, part in parts.items():
        if follows_leading(tensor.part_rule(name)):
            parts[name] = change(part)
    attributes = {}
    sizes = getattr(tensor, "block_size", None)
    if isinstance(sizes, tuple | list):  # one a dimension; a number counts elements that lie flat
        attributes["block_size"] = block(sizes)
    view = tensor.with_parts(parts, shape=shape, strides=strides, attributes=attributes)
    return lend(view, tensor._borrowed)


def _without(sizes: Sequence[int], dim: int) -> tuple[int, ...]:
    return (*sizes[:dim], *sizes[dim + 1 :])


def _with(sizes: Sequence[int], dim: int, size: int) -> tuple[int, ...]:
    return (*sizes[:dim], size, *sizes[dim:])
