"""`Int8Tensor`: int8 codes with a scale, and perhaps a zero point, a block."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.kernels import Weight, quantize_int8
from aoserial.schema.builtin import INT8_TENSOR
from aoserial.tensors.activation import Activation
from aoserial.tensors.columns import ColumnParts
from aoserial.tensors.domains import ScaleOp
from aoserial.tensors.granularity import BlockSize, block_size
from aoserial.tensors.registration import bind


@bind(INT8_TENSOR)
class Int8Tensor(ColumnParts):
    """w = (qdata - zero_point) · scale.

    qdata: int8 [..., N, K].
    scale: floating point, ceil(shape / block_size).
    zero_point: integer or floating point, the shape of scale; absent means zero.
    act_scale, act_zero_point: of a static activation.
    act_pre_scale: scales the activation first (AWQ, SmoothQuant); one number, or [K].
    act_pre_scale_op: whether it multiplies the activation or divides it.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    block_size: tuple[int, ...]
    zero_point: torch.Tensor | None = None
    act_scale: torch.Tensor | None = None
    act_zero_point: torch.Tensor | None = None
    act_pre_scale: torch.Tensor | None = None
    activation: Activation | None = None
    act_pre_scale_op: ScaleOp = ScaleOp.multiply
    reduce_range: bool = False

    @classmethod
    def from_float(cls, w: torch.Tensor, *, granularity: BlockSize = "row") -> Self:
        """Quantizes a weight symmetrically, to codes -127 … 127; its dtype becomes the logical one.

        Args:
            w: [..., N, K], floating point, finite.
            granularity: what shares a scale: `"tensor"`, `"row"`, or a block such as (1, 32).

        Raises:
            QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor.
        """
        blocks = block_size(granularity, w.shape)
        qdata, scale = quantize_int8(w.detach(), block_size=blocks)
        return cls(qdata, scale, blocks, shape=w.shape, dtype=w.dtype)

    def kernel_weight(self) -> Weight:
        return self._shown(
            "int8",
            act_pre_scale_op=self.act_pre_scale_op.name,
        )
