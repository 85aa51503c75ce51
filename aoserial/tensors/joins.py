"""Joining quantized tensors: `cat`, which undoes `split`, and `stack`, which undoes `unbind`.

Nothing is quantized again, so blocks must meet at the seams. What belongs to a tensor as a whole,
such as a scale of all of it, cannot be joined, unless it is one and the same in all: slices of one
tensor share it in memory. That two tensors hold equal values is no reason: values never decide what
is possible, or the same program would work with one checkpoint and not with the next.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors import geometry
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.operators import operator, same_memory

aten = torch.ops.aten


@operator(aten.cat.default)
def _cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> VersionedTensor:
    """Laws: `cat(w.split(n, dim), dim)` is `w` again; dequantizing and joining commute."""
    held = [tensor for tensor in tensors if isinstance(tensor, VersionedTensor)]
    if len(held) < len(tensors):
        raise UnsupportedOperationError(
            "a quantized tensor and a plain one cannot be joined: dequantize() the one, or "
            "quantize the other"
        )
    dim = geometry.normalize(dim, held[0].dim())
    held = [tensor for tensor in held if tensor.shape[dim]] or held[:1]
    shared = [name for name in held[0].part_names() if _is_shared(name, held)]
    return joined(
        held, dim, shared, lambda name, along: aten.cat([getattr(t, name) for t in held], along)
    )


@operator(aten.stack.default)
def _stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> VersionedTensor:
    return _cat([aten.unsqueeze.default(tensor, dim) for tensor in tensors], dim)


def joined(
    tensors: Sequence[VersionedTensor],
    dim: int,
    shared: Sequence[str],
    join_parts: Callable[[str, int], torch.Tensor],
) -> VersionedTensor:
    """Tensors that differ along a dimension alone, joined along it.

    Args:
        tensors: one at least.
        shared: the names of parts that are one and the same in all of them.
        join_parts: the parts of that name, joined along that dimension of theirs.

    Raises:
        BlockCutError, UnsupportedOperationError: as `geometry.join`, and where they differ in more.
    """
    first = tensors[0]
    for tensor in tensors:
        if _kind(tensor) != _kind(first):
            raise UnsupportedOperationError(
                f"cannot join tensors of several kinds: {first!r} and {tensor!r}"
            )
    layouts = [tensor.part_layout() for tensor in tensors]
    join = geometry.join(layouts, dim, shared)
    parts = {}
    for name in first.part_names():
        own = getattr(first, name)
        parts[name] = join_parts(name, join.parts[name]) if name in join.parts else own.clone()
    shape = list(first.shape)
    shape[dim] = sum(layout.shape[dim] for layout in layouts)
    return first.with_parts(parts, shape=shape, attributes=join.attributes)


def _is_shared(name: str, tensors: Sequence[VersionedTensor]) -> bool:
    first = getattr(tensors[0], name)
    return all(same_memory(first, getattr(tensor, name, None)) for tensor in tensors[1:])


def _kind(tensor: VersionedTensor) -> tuple[Any, ...]:
    """What tensors must have in common to be joined, besides their shapes and attributes."""
    parts = {name: getattr(tensor, name).dtype for name in tensor.part_names()}
    return type(tensor), tensor.dtype, tensor.device, parts, tensor._kept
