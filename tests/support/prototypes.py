"""Weights of the types that torchao's prototypes and training wrappers become."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aoserial.tensors import (
    BlockSparseTensor,
    CodebookTensor,
    Float8TrainingTensor,
    FloatxTensor,
    GGUFTensor,
    UnquantizedTensor,
    VersionedTensor,
)

N, K = 8, 16


def make_codebook() -> VersionedTensor:
    """A table of pairs of columns for each four rows, scaled."""
    return CodebookTensor(
        torch.randint(0, 8, (N, K // 2), dtype=torch.uint8),
        torch.randn(2, 2, 8, 1, 2),
        rows_per_code=1,
        columns_per_code=2,
        rows_per_table=4,
        columns_per_table=8,
        scale=torch.rand(N, 4),
        columns_per_scale=4,
        dtype=torch.float32,
    )


def make_codebook_stack() -> VersionedTensor:
    """As `make_codebook`, without scales."""
    return CodebookTensor(
        torch.randint(0, 16, (4, N, K), dtype=torch.int32),
        torch.randn(4, 1, 2, 16, 1, 1),
        rows_per_code=1,
        columns_per_code=1,
        rows_per_table=N,
        columns_per_table=8,
        dtype=torch.float32,
    )


def make_gguf() -> VersionedTensor:
    return GGUFTensor(
        torch.randint(0, 16, (N, K), dtype=torch.uint8),
        *(torch.randint(0, 64, (2, N, K // 4)).float()),
        *(torch.randn(2, N, K // 8)),
        block_size=(1, 4),
        superblock_size=8,
        dtype=torch.float32,
    )


def make_floatx() -> VersionedTensor:
    return FloatxTensor.from_float(torch.randn(N, K), granularity=(1, 8))


def make_block_sparse() -> VersionedTensor:
    return _blocks(torch.randn(3, 4, 4))


def make_block_sparse_int8() -> VersionedTensor:
    codes = torch.randint(-127, 128, (3, 4, 4), dtype=torch.int8)
    return _blocks(codes, scale=torch.rand(N, 1), block_size=(1, K))


def _blocks(values: torch.Tensor, **more) -> VersionedTensor:
    starts, columns = torch.tensor([0, 2, 3]), torch.tensor([0, 3, 1])
    return BlockSparseTensor(starts, columns, values, shape=(N, K), dtype=torch.float32, **more)


def make_float8_training() -> VersionedTensor:
    codes = torch.randn(N, K).to(torch.float8_e4m3fn)
    settings = (("axiswise_dim", None),)
    return Float8TrainingTensor(codes, torch.tensor(3.3), settings, dtype=torch.float32)


def make_unquantized() -> VersionedTensor:
    settings = (("config", ("Config", (("output", True),))),)
    return UnquantizedTensor(
        torch.randn(N, K), torch.tensor(2.0), settings=settings, dtype=torch.float32
    )


PROTOTYPES: dict[str, Callable[[], VersionedTensor]] = {
    "codebook": make_codebook,
    "codebook-stack": make_codebook_stack,
    "gguf": make_gguf,
    "floatx": make_floatx,
    "block-sparse": make_block_sparse,
    "block-sparse-int8": make_block_sparse_int8,
    "float8-training": make_float8_training,
    "unquantized": make_unquantized,
}
# the first of each class
ONE_OF_EACH = ("codebook", "gguf", "floatx", "block-sparse", "float8-training", "unquantized")
