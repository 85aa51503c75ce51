"""`CodebookTensor`: codes that stand for the entries of tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aoserial.kernels import dequantize_codebook
from aoserial.schema.builtin import CODEBOOK_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(CODEBOOK_TENSOR)
class CodebookTensor(VersionedTensor):
    """w = codebook[code], times a scale where there is one, in the dtype of the codebook.

    codes: uint8, int32 or int64 [..., N/R, K/V]; each stands for R rows and V columns of w.
    codebook: floating point [..., N/rows_per_table, K/columns_per_table, entries, R, V].
    scale: floating point [..., N, K/columns_per_scale]; absent means 1.
    """

    codes: torch.Tensor
    codebook: torch.Tensor
    rows_per_code: int
    columns_per_code: int
    rows_per_table: int
    columns_per_table: int
    scale: torch.Tensor | None = None
    columns_per_scale: int | None = None

    @classmethod
    def logical_shape(
        cls, parts: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[int]:
        *lead, rows, columns = parts["codes"].shape
        return (
            *lead,
            rows * attributes["rows_per_code"],
            columns * attributes["columns_per_code"],
        )

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return dequantize_codebook(
            self.codes,
            self.codebook,
            self.scale,
            rows_per_table=self.rows_per_table,
            columns_per_table=self.columns_per_table,
            columns_per_scale=self.columns_per_scale,
            dtype=self.dtype if dtype is None else dtype,
        )
