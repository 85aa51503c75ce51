"""What every `VersionedTensor` does under torch's operators besides computing: copies and moves.

Products are in `products`, embeddings in `lookups`, slices in `views`. An operator that none of
them has raises `UnsupportedOperationError`, which names it. Which operators torch calls for what
was observed: a parameter and a state dict detach, loading into a module copies, moving one calls
`_to_copy` and swaps, `to_empty` asks `empty_like`, FSDP makes room with `new_zeros`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import note_write
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors import geometry
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import CLASSES
from aoserial.tensors.operators import (
    as_view,
    lend,
    operator,
    same_memory,
    torch_function,
    view_of,
    view_operator,
)

aten = torch.ops.aten


# -- the same tensor again: parameters, state dicts, copies -------------------------------------


@view_operator(aten.detach.default)
def _detach(tensor: VersionedTensor) -> VersionedTensor:
    view = _same_parts(tensor, aten.detach.default)
    return lend(view, tensor._borrowed)


@torch_function(torch.Tensor.detach)
def _detach_first(tensor: VersionedTensor) -> torch.Tensor:
    """The same above torch's dispatcher, whose first call imports all of DTensor (a second).

    So a program that makes parameters and runs layers never pays for that. Compilers trace the
    operator.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if torch.compiler.is_compiling():
            return tensor.detach()
        detached: torch.Tensor = as_view(aten.detach.default, (tensor,), {}, _detach)
        return detached


@view_operator(aten.alias.default)
def _alias(tensor: VersionedTensor) -> VersionedTensor:
    view = _same_parts(tensor, aten.alias.default)
    return lend(view, tensor._borrowed)


def _same_parts(tensor: VersionedTensor, aten_op: Any) -> VersionedTensor:
    return tensor._apply_fn_to_data(lambda part: view_of(part, aten_op), strides=tensor.stride())


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
    for name in target._borrowed:
        if not same_memory(getattr(target, name), getattr(source, name)):
            raise UnsupportedOperationError(
                f"cannot copy into this slice: it shares {name!r} with the rest of the tensor it "
                f"is cut from, which would change too; copy the whole tensor"
            )
    _copy_parts(target, source, non_blocking=non_blocking)
    return target


def _copy_parts(
    target: VersionedTensor, source: VersionedTensor, *, non_blocking: bool = False
) -> None:
    for name in target.part_names():
        part = getattr(target, name)
        part.copy_(getattr(source, name), non_blocking=non_blocking)
        note_write(part)


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
    allowed = CLASSES.tensor(type(tensor)).schema.logical_dtypes
    if dtype_name(dtype) not in allowed:
        raise UnsupportedOperationError(
            f"{type(tensor).__name__} stands for {' or '.join(allowed)} values and cannot be "
            f"{dtype}; dequantize() it first"
        )
    return dtype


# -- room ---------------------------------------------------------------------------------------


@operator(aten.empty_like.default)
def _empty_like(
    tensor: VersionedTensor, *, dtype: torch.dtype | None = None, **kwargs: Any
) -> VersionedTensor:
    return tensor._apply_fn_to_data(
        lambda part: torch.empty_like(part, **kwargs), dtype=_logical(tensor, dtype)
    )


@operator(aten.new_empty.default)
def _new_empty(tensor: VersionedTensor, size: Sequence[int], **kwargs: Any) -> VersionedTensor:
    return _room(tensor, size, torch.Tensor.new_empty, **kwargs)


@operator(aten.new_zeros.default)
def _new_zeros(tensor: VersionedTensor, size: Sequence[int], **kwargs: Any) -> VersionedTensor:
    """Zero codes with scales of zero, which stand for zeros unless the class says what does.

    What belongs to the tensor as a whole is kept, as it is in slices.
    """
    room = _room(tensor, size, torch.Tensor.new_zeros, **kwargs)
    for name, value in tensor.fill_of_zeros.items():
        getattr(room, name).fill_(value)
    return room


@operator(aten.zeros_like.default)
def _zeros_like(
    tensor: VersionedTensor, *, memory_format: torch.memory_format | None = None, **kwargs: Any
) -> VersionedTensor:
    del memory_format
    return _new_zeros(tensor, tensor.shape, **kwargs)


def _room(
    tensor: VersionedTensor,
    size: Sequence[int],
    fill: Callable[..., torch.Tensor],
    *,
    dtype: torch.dtype | None = None,
    device: torch.device | None = None,
    layout: torch.layout | None = None,
    pin_memory: bool | None = None,
) -> VersionedTensor:
    """A tensor like this one of another size, its parts filled anew where their shape follows."""
    del layout
    now = tensor.part_layout()
    followers = {name for dim in range(tensor.dim()) for name in now.axes(dim)}
    resized = geometry.resize(now, size)
    parts: dict[str, torch.Tensor] = {}
    for name, shape in resized.parts.items():
        part = getattr(tensor, name)
        if name in followers:
            parts[name] = fill(part, shape, device=device, pin_memory=pin_memory)
        else:
            parts[name] = part.to(device or part.device, copy=True)
    return tensor.with_parts(
        parts, shape=size, dtype=_logical(tensor, dtype), attributes=resized.attributes
    )


@operator(aten.constant_pad_nd.default)  # how DTensor makes shards equally long
def _pad(tensor: VersionedTensor, pad: Sequence[int], value: float = 0) -> VersionedTensor:
    """With zeros behind."""
    size, before, behind = list(tensor.shape), pad[::2], pad[1::2]
    if value or any(before) or any(more < 0 for more in behind):
        raise UnsupportedOperationError(
            f"{type(tensor).__name__} is padded with zeros at its end, not with {value} by "
            f"{list(pad)}"
        )
    for back, more in enumerate(behind, start=1):
        size[-back] += more
    padded = room = _new_zeros(tensor, size)
    for dim, length in enumerate(tensor.shape):
        room = aten.slice.Tensor(room, dim, 0, length)
    _copy_parts(room, tensor)  # the padding is zeros with any scale
    return padded
