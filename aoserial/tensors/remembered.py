"""What a quantized tensor remembers of the last time it was multiplied by."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import is_
from typing import Any

import torch

from aoserial.kernels import Prepared, Weight


@dataclass(frozen=True, slots=True)
class Remembered:
    """A weight packed, and the fields of the tensor as they were: their names, and their values.

    Asking a tensor for its fields again, and for how often its parts have been written to, is a
    tenth of the time of describing it anew for each product.
    """

    names: tuple[str, ...]
    values: tuple[Any, ...]
    weight: Weight
    parts: tuple[torch.Tensor, ...]
    device: torch.device
    prepared: Prepared

    def canonical(self) -> Weight:
        return self.weight

    def holds_for(self, tensor: torch.Tensor) -> bool:
        """Whether the tensor still has these very fields, and nothing was written to its parts."""
        now = map(tensor.__dict__.get, self.names)
        return all(map(is_, now, self.values)) and self.prepared.is_of(self.parts)


@dataclass(frozen=True, slots=True)
class Matrices:
    """The matrices of a stack, and the fields of the stack as they were."""

    fields: Mapping[str, Any]
    matrices: Sequence[Any]
