"""Codes that stand for the entries of tables."""

from __future__ import annotations

import math

import torch

from aoserial.kernels.arithmetic.blocks import expand


def dequantize_codebook(
    codes: torch.Tensor,
    codebook: torch.Tensor,
    scale: torch.Tensor | None,
    *,
    rows_per_table: int,
    columns_per_table: int,
    columns_per_scale: int | None = None,
    dtype: torch.dtype,
) -> torch.Tensor:
    """Each code's entry in the table of its place, times the scale of its row and columns.

    The product is rounded to the dtype of the codebook, and then to `dtype`.

    Args:
        codes: integers [..., N/R, K/V].
        codebook: floating point [..., tables along N, tables along K, entries, R, V].
        scale: floating point [..., N, K/columns_per_scale], or None.
        rows_per_table, columns_per_table: elements of the weight that share a table.

    Source: torchao 0.8 to 0.18, `codebook.codebook_ops.dequantize_codebook` (one table, scaled in
    place), and 0.12 to 0.18, `codebook_coreml.codebook_ops.dequantize_codebook` (no scale).
    """
    *lead, rows, columns = codes.shape
    tall, wide = codebook.shape[-2:]
    tables = codebook.reshape(math.prod(lead), *codebook.shape[len(lead) :])
    found = tables[
        torch.arange(len(tables), device=codes.device)[:, None, None],
        _table_of(rows, tall, rows_per_table, codes.device)[:, None],
        _table_of(columns, wide, columns_per_table, codes.device),
        codes.reshape(len(tables), rows, columns).to(torch.int64),
    ]  # [lead, N/R, K/V, R, V]
    w = found.transpose(2, 3).reshape(*lead, rows * tall, columns * wide)
    if scale is not None:
        block = [*(1 for _ in w.shape[:-1]), columns_per_scale or w.shape[-1]]
        w = (w * expand(scale, block, w.shape)).to(codebook.dtype)
    return w.to(dtype)


def _table_of(codes: int, elements: int, shared: int, device: torch.device) -> torch.Tensor:
    """Along one dimension, the table of each code, which stands for several elements."""
    return torch.arange(codes, device=device) * elements // shared
