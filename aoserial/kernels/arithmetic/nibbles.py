"""Two codes of four bits in a byte, the one of even k in the low nibble."""

from __future__ import annotations

import torch

from aoserial.errors import QuantizationError


def pack_nibbles(codes: torch.Tensor) -> torch.Tensor:
    """uint8 [..., K], each 0 to 15 → uint8 [..., K/2].

    Raises:
        QuantizationError: K is odd.
    """
    if codes.shape[-1] % 2:
        raise QuantizationError(
            f"two codes share a byte, so the last dimension must be even, not {codes.shape[-1]}"
        )
    return codes[..., ::2] | codes[..., 1::2] << 4


def unpack_nibbles(packed: torch.Tensor) -> torch.Tensor:
    """uint8 [..., K/2] → uint8 [..., K], each 0 to 15."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2)
