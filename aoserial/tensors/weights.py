"""What the quantized weights that kernels know have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from aoserial.kernels import Spec, Weight, dequantize
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.activation import Activation
from aoserial.tensors.base import VersionedTensor


class QuantizedWeight(VersionedTensor):
    """A weight in blocks, which may say how its activation is quantized."""

    if TYPE_CHECKING:  # each type declares them, in its own order of fields
        block_size: tuple[int, ...]
        activation: Activation | None

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return dequantize(self.kernel_weight(), dtype)

    def kernel_weight(self) -> Weight:
        raise NotImplementedError

    def _shown(self, kind: str, **facts: Any) -> Weight:
        """The weight that a tensor with these attributes is to kernels.

        Args:
            kind, facts: what its codes mean, as `Spec` has it.
        """
        names = (*self.tensor_data_names, *self.optional_tensor_data_names)
        held = {name: getattr(self, name) for name in names}
        parts = {name: part for name, part in held.items() if part is not None}
        spec = Spec(
            kind=kind,
            data_dtype=dtype_name(parts["qdata"].dtype),
            shape=tuple(self.shape),
            dtype=dtype_name(self.dtype),
            block_size=self.block_size,
            activation=None if self.activation is None else self.activation.spec(),
            parts=tuple(parts),
            **facts,
        )
        return Weight(spec=spec, parts=parts)
