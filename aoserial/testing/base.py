"""The hook that a tested class fills in, and what every group of checks makes from it."""

from __future__ import annotations

import torch
from torch import nn

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors import VersionedTensor
from aoserial.testing.expectations import expect, own


class Checks:
    """Base of the groups of checks."""

    def make(self) -> torch.Tensor:
        """A small tensor of the class, [..., N, K]; fields alike, values others at each call."""
        raise NotImplementedError(f"{type(self).__name__} has to define make()")

    def tensor(self) -> VersionedTensor:
        """What `make` gives."""
        made = own(self.make())
        expect(made.dim() >= 2, "two dimensions or more")
        return made

    def weight(self) -> VersionedTensor:
        """A tensor of two dimensions: a copy of the first of a stack, or of a stack of stacks."""
        tensor = self.tensor()
        if tensor.dim() == 2:
            return tensor
        while tensor.dim() > 2:
            tensor = own(tensor[0])
        return own(tensor.clone())  # what a stack shares may not be written to

    def layer(self, weight: torch.Tensor | None = None, *, bias: bool = True) -> nn.Linear:
        """A linear layer with that weight."""
        weight = self.weight() if weight is None else weight
        module = nn.Linear(weight.shape[1], weight.shape[0], bias=bias)
        module.weight = nn.Parameter(weight, requires_grad=False)
        return module

    def activation(self, weight: torch.Tensor, *leading: int) -> torch.Tensor:
        """Random floats [*leading, K]; of two rows unless told."""
        return torch.randn(*(leading or (2,)), weight.shape[-1])


def is_sliceable(tensor: VersionedTensor) -> bool:
    """Whether the class says how its parts follow its dimensions."""
    try:
        tensor.part_layout().axes(0)
    except UnsupportedOperationError:
        return False
    return True


def pointers(tensor: object) -> dict[str, int]:
    """Where each part of a quantized tensor lies."""
    tensor = own(tensor)
    return {name: getattr(tensor, name).data_ptr() for name in tensor.part_names()}
