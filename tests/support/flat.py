"""Tensors whose parts lie flat, elements in their order, and unsigned integers."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aoserial.tensors import (
    NF4Tensor,
    OptimState4bit,
    OptimState8bit,
    OptimStateFp8,
    UIntTensor,
    VersionedTensor,
)

N, K = 8, 16
_BLOCK = 8


def make_nf4(block_size: int = 4, scaler_block_size: int = 8) -> VersionedTensor:
    """Two rows to a block of scales, or half a row."""
    return NF4Tensor.from_float(
        torch.randn(N, K), block_size=block_size, scaler_block_size=scaler_block_size
    )


def make_8bit() -> VersionedTensor:
    return OptimState8bit.from_float(torch.randn(N, K), block_size=_BLOCK)


def make_4bit(*shape: int) -> VersionedTensor:
    x = torch.rand(shape or (N, K))
    return OptimState4bit.from_float(x, signed=False, block_size=_BLOCK)


def make_fp8(*shape: int) -> VersionedTensor:
    return OptimStateFp8.from_float(torch.randn(shape or (N, K)), block_size=_BLOCK)


def make_uint() -> VersionedTensor:
    codes = torch.randint(0, 16, (N, K), dtype=torch.uint8)
    return UIntTensor(codes, 4, dtype=torch.float32)


FLAT: dict[str, Callable[[], VersionedTensor]] = {
    "nf4": make_nf4,
    "nf4-half-rows": lambda: make_nf4(2, 4),
    "optim-8bit": make_8bit,
    "optim-4bit": make_4bit,
    "optim-4bit-stack": lambda: make_4bit(4, N, K),
    "optim-fp8": make_fp8,
    "optim-fp8-stack": lambda: make_fp8(4, N, K),
    "uint": make_uint,
}
ONE_OF_EACH = ("nf4", "optim-4bit")
