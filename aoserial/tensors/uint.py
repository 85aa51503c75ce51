"""`UIntTensor`: unsigned integers of few bits, which stand for themselves."""

from __future__ import annotations

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.schema.builtin import UINT_TENSOR
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.registration import bind


@bind(UINT_TENSOR)
class UIntTensor(VersionedTensor):
    """Codes without a scale; `dequantize` gives the codes, as uint8 or as floats.

    qdata: uint8, one code a byte, 0 to 2**b - 1 with b the bit width.
    zero_code: the code that layers of its writer took as zero. Where that is not 0, the codes are
        no weights yet, and a layer is refused: subtract it first.
    """

    qdata: torch.Tensor
    bit_width: int
    zero_code: int = 0

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The codes."""
        return self.qdata.to(self.dtype if dtype is None else dtype, copy=True)

    def linear(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        if self.zero_code:
            raise UnsupportedOperationError(
                f"these codes are no weights yet: {self.zero_code} stands for zero; multiply by "
                f"dequantize(x.dtype) - {self.zero_code}"
            )
        return super().linear(x, bias)
