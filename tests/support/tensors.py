"""Comparing tensors by their bytes."""

from __future__ import annotations

import torch


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two plain tensors agree in dtype, shape and every bit (NaN payloads and -0.0 too)."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    return torch.equal(as_bytes(left), as_bytes(right))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)
