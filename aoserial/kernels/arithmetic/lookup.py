"""Codes that stand for the entries of a table, and scales over blocks of elements that lie flat.

What NF4 weights and the states of low-bit optimizers have in common: elements are counted in their
order, whatever the shape, and each `block_size` of them share a scale.
"""

from __future__ import annotations

import torch


def look_up(codes: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The entry of each code: codes uint8, any shape; table [T], T above every code."""
    return table[codes.to(torch.int32)]


def look_up_pairs(packed: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The entries of codes of four bits: packed uint8 [n], table [16] → [2 n].

    Two codes share a byte, the first in the high nibble (not the low one, as int4 weights have it).
    """
    pairs = torch.stack([table.repeat_interleave(16), table.repeat(16)], dim=-1)
    return look_up(packed, pairs).flatten()


def scale_flat(values: torch.Tensor, scale: torch.Tensor, block_size: int) -> torch.Tensor:
    """values [n] times the scale of its block of each, scale [n / block_size] → [n]."""
    return (values.reshape(-1, block_size) * scale.unsqueeze(-1)).flatten()
