"""Records: a quantized tensor as plain data. Torch-free, immutable, what migrations work on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Self

from aoserial.errors import MigrationError
from aoserial.schema import FrozenMap, Value
from aoserial.schema.values import freeze
from aoserial.storage import Part


@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One quantized tensor.

    Attributes:
        type: a stable id (`aoserial.Int8Tensor`), never a module path.
        version: of the type's schema.
        shape: the logical shape, that of the tensor it stands for.
        dtype: the logical dtype, torch's name.
        attributes: the fields that are not tensors.
        parts: the fields that are, with their bytes not yet read.
    """

    type: str
    version: int
    shape: tuple[int, ...]
    dtype: str
    attributes: FrozenMap
    parts: Mapping[str, Part]

    def __post_init__(self) -> None:
        if type(self.attributes) is not FrozenMap:
            object.__setattr__(self, "attributes", FrozenMap(self.attributes))
        object.__setattr__(self, "parts", MappingProxyType(dict(self.parts)))

    @property
    def nbytes(self) -> int:
        return sum(part.nbytes for part in self.parts.values())

    def at(self, version: int, *, type: str | None = None) -> Self:  # noqa: A002
        """The record said to be of another version, and of another type if one is given."""
        return replace(self, version=version, type=type or self.type)

    def set(self, **attributes: Any) -> Self:
        """The record with these attributes added or replaced; lists become tuples."""
        frozen: dict[str, Value] = {name: freeze(value) for name, value in attributes.items()}
        return replace(self, attributes=self.attributes.replace(**frozen))

    def put(self, **parts: Part) -> Self:
        """The record with these parts added or replaced."""
        return replace(self, parts={**self.parts, **parts})

    def drop(self, *names: str) -> Self:
        """The record without these attributes and parts, each of which must be there."""
        self._expect(names)
        parts = {name: part for name, part in self.parts.items() if name not in names}
        return replace(self, attributes=self.attributes.without(*names), parts=parts)

    def rename(self, **names: str) -> Self:
        """The record with attributes or parts renamed, `old="new"`; each must be there."""
        self._expect(names)
        attributes = {names.get(name, name): value for name, value in self.attributes.items()}
        parts = {names.get(name, name): part for name, part in self.parts.items()}
        if len(attributes) + len(parts) != len(self.attributes) + len(self.parts):
            raise MigrationError(f"renaming {names} would put two fields under one name")
        return replace(self, attributes=FrozenMap(attributes), parts=parts)

    def _expect(self, names: object) -> None:
        for name in names:  # type: ignore[attr-defined]
            if name not in self.attributes and name not in self.parts:
                raise MigrationError(f"{self.type}@{self.version} holds no field {name!r}")

    def __repr__(self) -> str:
        parts = ", ".join(
            f"{name}: {part.dtype}{list(part.shape)}" for name, part in self.parts.items()
        )
        return f"<{self.type}@{self.version} {self.dtype}{list(self.shape)} ({parts})>"
