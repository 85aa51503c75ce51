"""`Float8Tensor`: fp8 codes with a scale a block."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.kernels import Weight, quantize_float8
from aoserial.schema.builtin import FLOAT8_TENSOR
from aoserial.tensors.activation import Activation, KernelHint
from aoserial.tensors.granularity import BlockSize, block_size
from aoserial.tensors.registration import bind
from aoserial.tensors.weights import QuantizedWeight


@bind(FLOAT8_TENSOR)
class Float8Tensor(QuantizedWeight):
    """w = qdata · scale.

    qdata: float8 (e4m3fn, e5m2 and their fnuz kin) [..., N, K].
    scale: float32, bfloat16 or float16, ceil(shape / block_size).
    act_scale: of a static activation.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    block_size: tuple[int, ...]
    act_scale: torch.Tensor | None = None
    activation: Activation | None = None
    kernel: KernelHint | None = None

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        dtype: torch.dtype = torch.float8_e4m3fn,
        granularity: BlockSize = "row",
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one.

        Args:
            w: [..., N, K], floating point, finite.
            dtype: of the codes.
            granularity: what shares a scale: `"tensor"`, `"row"`, or a block such as (128, 128).

        Raises:
            QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
        """
        blocks = block_size(granularity, w.shape)
        qdata, scale = quantize_float8(w.detach(), block_size=blocks, dtype=dtype)
        return cls(qdata, scale, blocks, shape=w.shape, dtype=w.dtype)

    def kernel_weight(self) -> Weight:
        return self._shown(
            "float8",
        )
