"""Tensors whose parts lie flat, elements in their order, and unsigned integers."""

from __future__ import annotations

import math
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
    codes = torch.randint(0, 256, (N, K), dtype=torch.uint8)
    qmap = torch.linspace(-1, 1, 256)
    return OptimState8bit(codes, _scale(N, K), qmap, True, _BLOCK, dtype=torch.float32)


def make_4bit(*shape: int) -> VersionedTensor:
    shape = shape or (N, K)
    codes = torch.randint(0, 256, (math.prod(shape) // 2,), dtype=torch.uint8)
    qmap = torch.linspace(0, 1, 17)[1:]
    return OptimState4bit(
        codes, _scale(*shape), qmap, False, _BLOCK, shape=shape, dtype=torch.float32
    )


def make_fp8(*shape: int) -> VersionedTensor:
    shape = shape or (N, K)
    codes = torch.randn(shape).to(torch.float8_e4m3fn)
    return OptimStateFp8(codes, _scale(*shape), _BLOCK, dtype=torch.float32)


def make_uint() -> VersionedTensor:
    codes = torch.randint(0, 16, (N, K), dtype=torch.uint8)
    return UIntTensor(codes, 4, dtype=torch.float32)


def _scale(*shape: int) -> torch.Tensor:
    return torch.rand(math.prod(shape) // _BLOCK)


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
