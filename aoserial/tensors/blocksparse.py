"""`BlockSparseTensor`: compressed rows of square blocks, plain or of int8 codes."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.kernels import Spec, Weight, densify, dequantize, sparsify
from aoserial.schema.builtin import BLOCK_SPARSE_TENSOR
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.activation import Activation
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(BLOCK_SPARSE_TENSOR)
class BlockSparseTensor(VersionedTensor):
    """A matrix [N, K] that is zero where it has no block; with a scale, one of int8 codes.

    row_starts: int64 or int32 [N/B + 1]: where each row of blocks begins among the blocks.
    block_columns: int64 or int32 [blocks], the column of each, counted in blocks.
    block_values: floating point or int8 [blocks, B, B].
    scale, zero_point: ceil(shape / block_size), as in `Int8Tensor`. Blocks that are not there are
        codes of zero.
    """

    row_starts: torch.Tensor
    block_columns: torch.Tensor
    block_values: torch.Tensor
    scale: torch.Tensor | None = None
    zero_point: torch.Tensor | None = None
    block_size: tuple[int, ...] | None = None
    activation: Activation | None = None

    @classmethod
    def from_float(cls, w: torch.Tensor, *, block: int = 64) -> Self:
        """Keeps the blocks of a matrix that are not all zero, as they are.

        Args:
            w: [N, K], floating point.
            block: rows and columns of a block; N and K are multiples of it.

        Raises:
            QuantizationError: blocks that do not fill the matrix.
        """
        return cls(*sparsify(w.detach(), block), shape=w.shape, dtype=w.dtype)

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [N, K], in the logical dtype unless another is given."""
        weight = self.kernel_weight()
        if weight is not None:
            return dequantize(weight, dtype)
        return self._dense().to(self.dtype if dtype is None else dtype)

    def kernel_weight(self) -> Weight | None:
        """The int8 weight that it is with its zeros written out, made at each call; None if plain.

        Kernels then see what is to be done with the activation.
        """
        if self.scale is None or self.block_size is None:
            return None
        parts = {"qdata": self._dense(), "scale": self.scale}
        if self.zero_point is not None:
            parts["zero_point"] = self.zero_point
        spec = Spec(
            kind="int8",
            data_dtype=dtype_name(self.block_values.dtype),
            shape=tuple(self.shape),
            dtype=dtype_name(self.dtype),
            block_size=self.block_size,
            activation=None if self.activation is None else self.activation.spec(),
            parts=tuple(parts),
        )
        return Weight(spec=spec, parts=parts)

    def _dense(self) -> torch.Tensor:
        return densify(self.row_starts, self.block_columns, self.block_values, shape=self.shape)
