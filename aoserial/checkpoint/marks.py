"""What a pickle says of a tensor beside its values. Torch-free to import."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Mark:
    """That it was a Parameter, or that it trains.

    Attributes:
        parameter: it was a `torch.nn.Parameter`.
        requires_grad: as saved.
    """

    parameter: bool
    requires_grad: bool

    def put_on(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor as the Parameter it was, or with its requires_grad; integers never train."""
        import torch  # torch-free module until here

        trains = self.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
        if self.parameter:
            return torch.nn.Parameter(tensor, requires_grad=trains)
        return tensor.requires_grad_(trains)
