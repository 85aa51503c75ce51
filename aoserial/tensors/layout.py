"""How the parts of one quantized tensor follow its dimensions: its shape rules, made concrete."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aoserial.errors import UnsupportedOperationError
from aoserial.schema import BLOCKS, Schema
from aoserial.schema.shapes import Rule, flat_divisors


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """A dimension of a part along which it follows the logical one.

    Attributes:
        dim: of the part.
        unit: logical elements to one of the part, or to `count` of it.
        length: logical elements in all.
        attribute: the one that says how many share an element of the part, and shrinks where one
            block is shared by several slices; None for codes, whose bytes cannot be shared.
        count: how many of the part go with `unit`; more than one of a part that lies flat.
    """

    dim: int
    unit: int
    length: int
    attribute: str | None
    count: int = 1

    @property
    def covered(self) -> bool:
        """Whether one block covers the whole dimension."""
        return self.attribute is not None and self.unit >= self.length

    @property
    def block(self) -> int:
        """`unit`, but not more than there are."""
        return max(1, min(self.unit, self.length)) if self.covered else self.unit


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """The shapes of a tensor and of its parts, and how the ones follow from the other.

    Attributes:
        schema: of its type.
        shape: the logical shape.
        attributes: live or plain; `block_size` and the divisors of shape rules are looked at.
        parts: the shapes of the parts that are there, by name.
        rules: the shape rules of parts, by name. A part without one, or whose rule does not name a
            dimension, belongs to the tensor as a whole.
        indivisible: dimension → why the tensor is neither cut nor joined along it.
    """

    schema: Schema
    shape: tuple[int, ...]
    attributes: Mapping[str, Any]
    parts: Mapping[str, tuple[int, ...]]
    rules: Mapping[str, Rule | None]
    indivisible: Mapping[int, str] = field(default_factory=dict)

    def axes(self, dim: int) -> dict[str, Axis]:
        """How each part follows a logical dimension, without those that do not.

        Raises:
            UnsupportedOperationError: the schema names no dimensions, or gives a required tensor no
                shape rule.
        """
        fields = self.schema.tensors
        unruled = [field.name for field in fields if field.required and field.shape is None]
        if self.schema.dims is None or unruled:
            raise UnsupportedOperationError(
                f"{self.schema} does not say how its parts follow its dimensions: declare `dims`, "
                f"and the `shape` of {', '.join(unruled) or 'each tensor field'}"
            )
        found = {name: self._axis(name, dim) for name in self.parts}
        return {name: axis for name, axis in found.items() if axis is not None}

    def why_whole(self, dim: int) -> str | None:
        """Why the tensor is neither cut nor joined along a dimension; None where it may be.

        A range of a dimension is a range of a part that lies flat only where nothing is in front.
        """
        flat = [name for name in self.parts if flat_divisors(self.rules.get(name)) is not None]
        if flat and math.prod(self.shape[:dim]) != 1:
            return f"{flat[0]!r} lies flat, one row of dimension {dim} behind the other"
        return self.indivisible.get(dim)

    def _axis(self, name: str, dim: int) -> Axis | None:
        rule, length = self.rules.get(name), self.shape[dim]
        if rule is None:
            return None
        if rule == BLOCKS:
            unit = self.attributes["block_size"][dim]
            return Axis(dim=dim, unit=unit, length=length, attribute="block_size")
        divisors = flat_divisors(rule)
        if divisors is not None:
            return self._flat_axis(divisors, dim)
        named = [term for term in self.schema.dims or () if term != "..."]
        from_end = len(self.shape) - dim
        if from_end > len(named):
            leads = rule[:1] == ("...",)
            return Axis(dim=dim, unit=1, length=length, attribute=None) if leads else None
        for back, term in enumerate(reversed(rule), start=1):
            base, _, divisor = term.partition("/")
            if base == named[-from_end]:
                counted = divisor == "" or divisor.isdigit()
                unit = int(divisor or 1) if counted else self.attributes[divisor]
                # the first tensor of a schema holds the codes: several to a byte, not to a block
                packed = counted or name == self.schema.tensors[0].name
                return Axis(
                    dim=len(self.parts[name]) - back,
                    unit=unit,
                    length=length,
                    attribute=None if packed else divisor,
                )
        return None

    def _flat_axis(self, divisors: tuple[str, ...], dim: int) -> Axis | None:
        if math.prod(self.shape[:dim]) != 1:
            return None
        row = math.prod(self.shape[dim + 1 :])
        sizes = [int(each) if each.isdigit() else self.attributes[each] for each in divisors]
        common = math.gcd(row, math.prod(sizes))
        return Axis(
            dim=0,
            unit=math.prod(sizes) // common,
            length=self.shape[dim],
            attribute=None,
            count=row // common,
        )


def leading(schema: Schema, rank: int) -> int:
    """How many dimensions in front the schema does not name: those of a stack of such tensors."""
    if schema.dims is None or schema.dims[:1] != ("...",):
        return 0
    return rank - (len(schema.dims) - 1)


def follows_leading(rule: Rule | None) -> bool:
    """Whether a part of that shape rule has the leading dimensions of the tensor."""
    return rule is not None and (rule == BLOCKS or rule[:1] == ("...",))
