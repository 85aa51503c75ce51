"""`UnquantizedTensor`: a plain weight, with settings of how it was to be quantized."""

from __future__ import annotations

from typing import Any

import torch

from aoserial.schema.builtin import UNQUANTIZED_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(UNQUANTIZED_TENSOR)
class UnquantizedTensor(VersionedTensor):
    """What training and FSDP wrap around a weight that they quantize anew at every step.

    Here it multiplies as the plain weight: what it stands for is `weight`, and nothing is lost.

    weight: floating point [..., N, K].
    precomputed_scale: of the next cast, which the optimizer or FSDP computed beforehand.
    last_amax, amax_history: max|w| as last seen and before, of delayed scaling.
    settings: pairs of the writer's names and values; nothing here looks at them.
    """

    weight: torch.Tensor
    precomputed_scale: torch.Tensor | None = None
    last_amax: torch.Tensor | None = None
    amax_history: torch.Tensor | None = None
    settings: Any = None

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return self.weight.to(self.dtype if dtype is None else dtype)
