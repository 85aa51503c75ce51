"""An AffineQuantizedTensor of the newest form, as the readers of its layouts see it. Torch-free."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from aoserial.errors import FieldError
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.schema.shapes import blocks
from aoserial.storage import Part, Shape, describe
from aoserial.torchao.affine.impls import BY_TYPE
from aoserial.torchao.wrapping import inside, settings

_IMPL = "tensor_impl"


@dataclass(frozen=True)
class Affine:
    """One record, and shorter words for what is asked of it.

    Every reader's errors are `FieldError`s that name a field of the record.
    """

    record: Record

    @property
    def shape(self) -> Shape:
        return self.record.shape

    @property
    def matrix(self) -> tuple[int, int]:
        """The shape, [N, K]."""
        if len(self.shape) != 2:
            raise FieldError(f"is {list(self.shape)}, expected [N, K]").locate(field="shape")
        return self.shape[0], self.shape[1]

    @property
    def block_size(self) -> Shape:
        block: Any = self.record.attributes["block_size"]
        self.blocks  # noqa: B018 - checks that it has positive lengths
        return tuple(block)

    @cached_property
    def blocks(self) -> Shape:
        """How many blocks there are along each dimension."""
        return blocks(self.shape, self.record.attributes)

    @property
    def group_size(self) -> int:
        """Codes of a row that share a scale."""
        *rows, columns = self.block_size
        if any(length != 1 for length in rows):
            raise FieldError(f"is {list(self.block_size)}, expected groups in rows").locate(
                field="block_size"
            )
        return columns

    @property
    def domain(self) -> str | None:
        """INT, FLOAT or NONE; None where the field is."""
        value = self.record.attributes["zero_point_domain"]
        return value.name if isinstance(value, Symbol) else None

    def limits(self, default: tuple[int, int]) -> tuple[int, int]:
        """The least and the greatest code, `default` where the fields are None."""
        found = []
        for name, other in zip(("quant_min", "quant_max"), default, strict=True):
            value = self.record.attributes[name]
            if value is None:
                found.append(other)
            elif isinstance(value, float) and value.is_integer():
                found.append(int(value))
            else:
                raise FieldError(f"is {value!r:.40}, expected a whole number").locate(field=name)
        return found[0], found[1]

    @cached_property
    def impl(self) -> Nested:
        value = self.record.attributes[_IMPL]
        if not isinstance(value, Nested) or value.type not in BY_TYPE:
            raise FieldError(f"{value!r:.60} is no layout's tensor").locate(field=_IMPL)
        return value

    @property
    def layout(self) -> FrozenMap:
        """The layout's fields."""
        value = self.impl.fields.get("_layout")
        return value.fields if isinstance(value, Nested) else FrozenMap()

    @cached_property
    def parts(self) -> dict[str, Part]:
        """The impl's tensors: those it has to have, and of the others some."""
        held, row = inside(self.record.parts, _IMPL), BY_TYPE[self.impl.type]
        missing = [name for name in row.tensors if name not in held]
        foreign = [name for name in held if name not in (*row.tensors, *row.optional)]
        if missing or foreign:
            raise FieldError(
                f"has {', '.join(sorted(held)) or 'no tensors'}; {row.name} has "
                f"{', '.join(row.tensors)} and may have {', '.join(row.optional) or 'no others'}"
            ).locate(field=_IMPL)
        return held

    def of_blocks(self, name: str) -> Part:
        """A part that has one number a block, with the blocks' shape."""
        part = self.parts[name]
        if math.prod(part.shape) != math.prod(self.blocks):
            raise FieldError(
                f"is {describe(part)}, expected {list(self.blocks)}: {list(self.shape)} in blocks "
                f"of {list(self.block_size)}"
            ).locate(field=f"{_IMPL}.{name}")
        return part.view(part.dtype, self.blocks)

    def of_codes(self, name: str) -> Part:
        """A part that has one number a code."""
        part = self.parts[name]
        if part.shape != self.shape:
            raise FieldError(f"is {describe(part)}, expected {list(self.shape)}").locate(
                field=f"{_IMPL}.{name}"
            )
        return part

    def become(self, kind: str, parts: dict[str, Part], **attributes: Value) -> Record:
        """Our type with these fields, and with what wrappers said."""
        said, said_parts = settings(self.record)
        return Record(
            type=f"aoserial.{kind}",
            version=1,
            shape=self.shape,
            dtype=self.record.dtype,
            attributes=FrozenMap(attributes | {"block_size": self.block_size} | said),
            parts=parts | said_parts,
        )


def zero_domain(name: str) -> Symbol:
    return Symbol("aoserial.ZeroDomain", name)
