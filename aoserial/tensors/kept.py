"""Fields that a newer writer added and this reader ignores, carried along unread.

Only fields of a group that the schema's author marked ignorable come here. They go where their
tensor goes and are written back when it is saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from aoserial.schema import FrozenMap

_PREFIX = "_kept_"  # a stored name may be anything; behind this it hides no attribute of a tensor


@dataclass(frozen=True, slots=True)
class Kept:
    """The ignored fields of a tensor: attributes, and the names of parts."""

    attributes: FrozenMap
    parts: tuple[str, ...]

    @property
    def slots(self) -> tuple[str, ...]:
        """The attribute names that the parts are held under."""
        return tuple(_PREFIX + name for name in self.parts)

    def attach(self, tensor: torch.Tensor, parts: Mapping[str, torch.Tensor]) -> None:
        """Puts the ignored fields on a tensor; `parts` has the tensors by slot."""
        if self:
            tensor._kept = self  # type: ignore[attr-defined]
            for slot in self.slots:
                setattr(tensor, slot, parts[slot])

    def __bool__(self) -> bool:
        return bool(self.attributes or self.parts)


NOTHING_KEPT = Kept(FrozenMap(), ())
