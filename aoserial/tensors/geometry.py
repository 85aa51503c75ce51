"""Which bytes of which part a slice of a quantized tensor needs: arithmetic on shapes alone.

Everything follows from the shape rules of the schema (`schema.shapes`). A slice [a:b] along a
logical dimension becomes a slice of every part that has this dimension. A cut through a block of
elements that share a scale, or through codes that share a byte, is refused; except where one block
covers the whole dimension, as a row's scale does along K: then the scale is shared by every slice,
and the block shrinks to the slice.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aoserial.errors import BlockCutError, UnsupportedOperationError
from aoserial.schema import BLOCKS, Schema
from aoserial.schema.shapes import Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """What a slice does to the fields.

    Attributes:
        parts: name → (dimension, start, stop) of those that are sliced; the others stay whole.
        attributes: those that change.
    """

    parts: dict[str, tuple[int, int, int]]
    attributes: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Axis:
    """A dimension of a part along which it follows the logical one.

    Attributes:
        dim: of the part.
        unit: logical elements to one of the part.
        attribute: the one that says so, and shrinks with a slice of a single shared block; None
            for codes packed into bytes, which cannot be shared.
    """

    dim: int
    unit: int
    attribute: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """A logical dimension, the number of them, and the number that a part has."""

    dim: int
    rank: int
    part_rank: int


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


def cut(
    schema: Schema,
    shape: Sequence[int],
    attributes: Mapping[str, Any],
    shapes: Mapping[str, Sequence[int]],
    span: tuple[int, int, int],
) -> Cut:
    """The slice of each part that a slice of the tensor needs.

    Args:
        shape: the logical shape.
        attributes: live or plain; `block_size` and the divisors of shape rules are looked at.
        shapes: of the parts that are there, by name.
        span: dimension, start and stop of the slice, normalized.

    Raises:
        BlockCutError: a bound that is not between two blocks.
        UnsupportedOperationError: the schema names no dimensions, or gives a required tensor no
            shape rule. (An optional one without a rule stays whole.)
    """
    dim, start, stop = span
    length = shape[dim]
    unruled = [field.name for field in schema.tensors if field.required and field.shape is None]
    if schema.dims is None or unruled:
        raise UnsupportedOperationError(
            f"{schema} does not say how its parts follow its dimensions: declare `dims`, and the "
            f"`shape` of {', '.join(unruled) or 'each tensor field'}"
        )
    axes: dict[str, _Axis] = {}
    for field in schema.tensors:
        if field.name in shapes and field.shape is not None:
            place = _Place(dim=dim, rank=len(shape), part_rank=len(shapes[field.name]))
            axis = _axis(field.shape, schema.dims, place, attributes)
            if axis is not None:
                axes[field.name] = axis
    shared = {name for name, axis in axes.items() if axis.attribute and axis.unit >= length}
    _check({name: axis for name, axis in axes.items() if name not in shared}, length, start, stop)
    parts: dict[str, tuple[int, int, int]] = {}
    changed: dict[str, Any] = {}
    for name, axis in axes.items():
        first = 0 if name in shared else start // axis.unit
        parts[name] = (axis.dim, first, first + -(-(stop - start) // axis.unit))
        if axis.attribute is not None:
            size = max(1, min(axis.unit, stop - start))
            changed[axis.attribute] = _clipped(attributes[axis.attribute], dim, size)
    return Cut(parts=parts, attributes=changed)


def leading(schema: Schema, rank: int) -> int:
    """How many dimensions in front the schema does not name: those of a stack of such tensors."""
    if schema.dims is None or schema.dims[:1] != ("...",):
        return 0
    return rank - (len(schema.dims) - 1)


def follows_leading(rule: Rule | None) -> bool:
    """Whether a part of that shape rule has the leading dimensions of the tensor."""
    return rule is not None and (rule == BLOCKS or rule[:1] == ("...",))


def _axis(rule: Rule, dims: Rule, place: _Place, attributes: Mapping[str, Any]) -> _Axis | None:
    """How a part with that rule follows a logical dimension; None if it does not."""
    if rule == BLOCKS:
        unit = attributes["block_size"][place.dim]
        return _Axis(dim=place.dim, unit=unit, attribute="block_size")
    named = [term for term in dims if term != "..."]
    from_end = place.rank - place.dim
    if from_end > len(named):
        return _Axis(dim=place.dim, unit=1, attribute=None) if rule[0] == "..." else None
    for back, term in enumerate(reversed(rule), start=1):
        base, _, divisor = term.partition("/")
        if base == named[-from_end]:
            counted = divisor == "" or divisor.isdigit()
            unit = int(divisor or 1) if counted else attributes[divisor]
            attribute = None if counted else divisor
            return _Axis(dim=place.part_rank - back, unit=unit, attribute=attribute)
    return None


def _check(axes: Mapping[str, _Axis], length: int, start: int, stop: int) -> None:
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


def _clipped(value: Any, dim: int, size: int) -> Any:
    """A block size, or the single number of a divisor, with its length along `dim` replaced."""
    if isinstance(value, int):
        return size
    return type(value)((*value[:dim], size, *value[dim + 1 :]))
