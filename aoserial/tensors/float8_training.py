"""`Float8TrainingTensor`: fp8 codes that were multiplied by a scale."""

from __future__ import annotations

from typing import Any

import torch

from aoserial.kernels import dequantize_float8_training
from aoserial.schema.builtin import FLOAT8_TRAINING_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(FLOAT8_TRAINING_TENSOR)
class Float8TrainingTensor(VersionedTensor):
    """w = qdata / scale, which is not qdata · (1 / scale), and so no `Float8Tensor`.

    qdata: float8 (e4m3fn, e5m2 and their fnuz kin) [..., N, K].
    scale: float32, one number, or of the rank of qdata and broadcast over it.
    settings: what its writer wanted of products with it; nothing here looks at them.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    settings: Any = None

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain tensor [..., N, K], in the logical dtype unless another is given."""
        return dequantize_float8_training(
            self.qdata, self.scale, dtype=self.dtype if dtype is None else dtype
        )
