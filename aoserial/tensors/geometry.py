"""Which bytes of which part a change of shape needs: arithmetic on shapes alone, torch-free.

Everything follows from the shape rules of the schema (`schema.shapes`). A slice [a:b] along a
logical dimension becomes a slice of every part that has this dimension, and tensors that are joined
along it have those parts joined. A cut through a block of elements that share a scale, or through
codes that share a byte, is refused; except where one block covers the whole dimension, as a row's
scale does along K: then the scale is shared by every slice, and the block shrinks to the slice; and
where one of a stack is taken whose scale is that of several.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from aoserial.errors import BlockCutError, UnsupportedOperationError
from aoserial.tensors.layout import Axis, Layout, leading


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """What a slice does to the fields.

    Attributes:
        parts: name → (dimension, start, stop) of those that are sliced; the others stay whole.
        attributes: those that change.
        shared: the names of parts that the rest of the tensor needs as well.
    """

    parts: dict[str, tuple[int, int, int]]
    attributes: dict[str, Any]
    shared: frozenset[str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Join:
    """What joining tensors does to the fields.

    Attributes:
        parts: name → the dimension along which the parts are joined; of the others, the first
            tensor's stands for all.
        attributes: those that change.
    """

    parts: dict[str, int]
    attributes: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Pick:
    """What picking rows, in any order, does to the fields.

    Attributes:
        parts: name → the dimension along which rows are picked; the others stay whole.
        attributes: those that change.
    """

    parts: dict[str, int]
    attributes: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Resize:
    """The fields of a tensor of another shape: the shapes of parts, and attributes that change."""

    parts: dict[str, tuple[int, ...]]
    attributes: dict[str, Any]


def cut(layout: Layout, dim: int, start: int, stop: int) -> Cut:
    """The slice of each part that `[start:stop]` along a dimension needs, bounds in range.

    Raises:
        BlockCutError: a bound that is not between two blocks.
        UnsupportedOperationError: as `Layout.axes`.
    """
    axes, length = layout.axes(dim), layout.shape[dim]
    if (start, stop) != (0, length):
        _check_divisible(layout, dim)
    is_stack = dim < leading(layout.schema, len(layout.shape))
    shared = {
        name
        for name, axis in axes.items()
        if axis.covered or (is_stack and _inside(axis, start, stop))
    }
    _check({name: axis for name, axis in axes.items() if name not in shared}, length, start, stop)
    parts: dict[str, tuple[int, int, int]] = {}
    changed: dict[str, Any] = {}
    for name, axis in axes.items():
        first = 0 if axis.covered else start // axis.unit
        last = first + -(-(stop - start) // axis.unit)
        parts[name] = (axis.dim, first * axis.count, last * axis.count)
        if axis.attribute is not None:
            size = max(1, min(axis.unit, stop - start))
            changed[axis.attribute] = _clipped(layout.attributes[axis.attribute], dim, size)
    whole = set(layout.parts) - set(axes)
    rest = frozenset() if (start, stop) == (0, length) else frozenset(shared | whole)
    return Cut(parts=parts, attributes=changed, shared=rest)


def pick(layout: Layout, count: int) -> Pick | None:
    """What so many rows of the first dimension need; None where they do not lie one by one."""
    if layout.why_whole(0) is not None:
        return None
    parts: dict[str, int] = {}
    changed: dict[str, Any] = {}
    try:
        axes = layout.axes(0)
    except UnsupportedOperationError:
        return None
    for name, axis in axes.items():
        if axis.covered and axis.attribute is not None:
            changed[axis.attribute] = _clipped(layout.attributes[axis.attribute], 0, count)
        elif axis.unit == axis.count == 1:
            parts[name] = axis.dim
        else:
            return None
    return Pick(parts=parts, attributes=changed)


def join(layouts: Sequence[Layout], dim: int, shared: Collection[str] = ()) -> Join:
    """How tensors that differ along one dimension alone are joined along it.

    Slices of one tensor that share one block become one block again. Blocks that only happen to
    hold the same values stay apart: which of the two it is must not depend on values.

    Args:
        layouts: of the tensors, one at least.
        shared: the names of parts that are one and the same in all of them.

    Raises:
        BlockCutError: a seam that is not between two blocks.
        UnsupportedOperationError: tensors that differ in more, a part that belongs to each as a
            whole and is not shared, or as `Layout.axes`.
    """
    first = layouts[0]
    if len(layouts) > 1:
        _check_divisible(first, dim)
    axes = [layout.axes(dim) for layout in layouts]
    for layout, other in zip(layouts, axes, strict=True):
        if _besides(layout, dim, other) != _besides(first, dim, axes[0]):
            raise UnsupportedOperationError(
                f"cannot join along dimension {dim} tensors that differ in more: {layout.schema} "
                f"of shape {list(first.shape)} with {dict(first.attributes)} and of shape "
                f"{list(layout.shape)} with {dict(layout.attributes)}"
            )
    whole = next((name for name in first.parts if name not in axes[0] | dict.fromkeys(shared)), "")
    if whole:
        raise UnsupportedOperationError(
            f"{whole!r} belongs to each tensor as a whole, so only slices of one tensor, which "
            f"share it, can be joined along dimension {dim}"
        )
    apart = {
        axis.attribute
        for each in axes
        for name, axis in each.items()
        if not (axis.covered and name in shared)
    }
    parts: dict[str, int] = {}
    changed: dict[str, Any] = {}
    for name, axis in axes[0].items():
        if axis.attribute in apart:
            parts[name], unit = axis.dim, axis.block
            _check_seams(name, [each[name] for each in axes])
        else:
            unit = max(1, sum(layout.shape[dim] for layout in layouts))
        if axis.attribute is not None:
            changed[axis.attribute] = _clipped(first.attributes[axis.attribute], dim, unit)
    return Join(parts=parts, attributes=changed)


def resize(layout: Layout, shape: Sequence[int]) -> Resize:
    """The shapes of the parts of a tensor like this one, but of another shape of the same rank.

    A block that covers a dimension covers it still.

    Raises:
        BlockCutError: a length that leaves a byte half empty, or changes what cannot be cut.
        UnsupportedOperationError: another rank, or as `Layout.axes`.
    """
    if len(shape) != len(layout.shape):
        raise UnsupportedOperationError(
            f"a {layout.schema} of shape {list(layout.shape)} gives no shape {list(shape)}: the "
            f"number of dimensions stays"
        )
    resized, sizes = layout, set[str]()
    for dim in reversed(range(len(shape))):  # the last first, since parts that lie flat count rows
        sizes |= {axis.attribute for axis in layout.axes(dim).values() if axis.attribute}
        resized = _resized(resized, dim, shape[dim])
    return Resize(
        parts=dict(resized.parts), attributes={name: resized.attributes[name] for name in sizes}
    )


def _resized(layout: Layout, dim: int, length: int) -> Layout:
    """The same of another length along one dimension."""
    if length != layout.shape[dim]:
        _check_divisible(layout, dim)
    parts, attributes = dict(layout.parts), dict(layout.attributes)
    for name, axis in layout.axes(dim).items():
        unit = max(1, length if axis.covered else axis.unit)
        if axis.attribute is None and length % unit:
            raise BlockCutError(f"{length} elements do not fill {name!r}, {unit} to one of it")
        held = parts[name]
        parts[name] = (*held[: axis.dim], -(-length // unit) * axis.count, *held[axis.dim + 1 :])
        if axis.attribute is not None:
            size = max(1, min(unit, length))
            attributes[axis.attribute] = _clipped(attributes[axis.attribute], dim, size)
    shape = (*layout.shape[:dim], length, *layout.shape[dim + 1 :])
    return replace(layout, shape=shape, parts=parts, attributes=attributes)


def normalize(dim: int, rank: int) -> int:
    """`dim` counted from the front.

    Raises:
        IndexError: there is no such dimension.
    """
    if not -rank <= dim < rank:
        raise IndexError(f"dimension out of range: {dim} of a tensor with {rank}")
    return dim % rank


def clamp(start: int | None, stop: int | None, length: int) -> tuple[int, int]:
    """A slice as Python means it: negative bounds count from the end, and none is out of range."""
    first, last, _ = slice(start, stop).indices(length)
    return first, max(first, last)


def _inside(axis: Axis, start: int, stop: int) -> bool:
    """Whether a slice is a part of one block."""
    within = start // axis.unit == (stop - 1) // axis.unit
    return axis.attribute is not None and within and stop - start < axis.unit


def _check_divisible(layout: Layout, dim: int) -> None:
    reason = layout.why_whole(dim)
    if reason is not None:
        raise BlockCutError(f"dimension {dim} of {layout.schema} stays whole: {reason}")


def _check(axes: Mapping[str, Axis], length: int, start: int, stop: int) -> None:
    """Raises `BlockCutError` unless both bounds lie between blocks of every part, or at the end."""
    step = math.lcm(*(axis.unit for axis in axes.values()))
    for bound in (start, stop):
        if bound % step and bound != length:
            below = bound // step * step
            name = next(name for name, axis in axes.items() if bound % axis.unit)
            raise BlockCutError(
                f"a cut at {bound} of {length} goes through {axes[name].unit} elements that share "
                f"one of {name!r}; the nearest cuts are {below} and {min(below + step, length)}"
            )


def _besides(layout: Layout, dim: int, axes: Mapping[str, Axis]) -> tuple[object, ...]:
    """What a layout is but for its length, and the lengths of its blocks, along a dimension."""
    rest = dict(layout.attributes)
    for axis in axes.values():
        if axis.attribute is not None:
            rest[axis.attribute] = _clipped(rest[axis.attribute], dim, 0)
    shape = (*layout.shape[:dim], *layout.shape[dim + 1 :])
    return layout.schema, shape, rest, set(layout.parts)


def _check_seams(name: str, axes: Sequence[Axis]) -> None:
    """Raises `BlockCutError` unless blocks of one size fill every tensor, but perhaps the last."""
    block = axes[0].block
    for place, axis in enumerate(axes, start=1):
        if place < len(axes):
            fits = axis.block == block and axis.length % block == 0
        else:
            fits = axis.block == block or (axis.covered and axis.block < block)
        if not fits:
            raise BlockCutError(
                f"{axis.length} elements, one of {name!r} for each {axis.block}, cannot be joined "
                f"to others with one for each {block}: blocks of one size must fill all but the "
                f"last"
            )


def _clipped(value: Any, dim: int, size: int) -> Any:
    """A block size, or the single number of a divisor, with its length along `dim` replaced."""
    if isinstance(value, int):
        return size
    return type(value)((*value[:dim], size, *value[dim + 1 :]))
