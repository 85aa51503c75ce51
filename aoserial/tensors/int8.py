"""`Int8Tensor`: int8 codes with a scale, and perhaps a zero point, a block."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.kernels import Spec, Weight, dequantize_int8, quantize_int8
from aoserial.schema.builtin import INT8_TENSOR
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.activation import Activation
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.granularity import BlockSize, block_size
from aoserial.tensors.registration import bind


@bind(INT8_TENSOR)
class Int8Tensor(VersionedTensor):
    """w = (qdata - zero_point) · scale.

    qdata: int8 [..., N, K].
    scale: floating point, ceil(shape / block_size).
    zero_point: integer or floating point, the shape of scale; absent means zero.
    act_scale, act_zero_point: of a static activation.
    act_pre_scale: multiplies the activation first (AWQ, SmoothQuant); one number, or [K].
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    block_size: tuple[int, ...]
    zero_point: torch.Tensor | None = None
    act_scale: torch.Tensor | None = None
    act_zero_point: torch.Tensor | None = None
    act_pre_scale: torch.Tensor | None = None
    activation: Activation | None = None
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

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain weight [..., N, K], in the logical dtype unless another is given."""
        return dequantize_int8(
            self.qdata,
            self.scale,
            self.zero_point,
            block_size=self.block_size,
            dtype=self.dtype if dtype is None else dtype,
        )

    def cut_part(
        self, name: str, part: torch.Tensor, dim: int, start: int, stop: int
    ) -> torch.Tensor:
        """act_pre_scale has one number, or one for each k, and then follows K."""
        along_k = dim == self.dim() - 1 and part.shape[-1:] == self.shape[-1:]
        if name == "act_pre_scale" and along_k and self.shape[-1] > 1:
            return part[..., start:stop]
        return part

    def kernel_weight(self) -> Weight:
        held = {
            "qdata": self.qdata,
            "scale": self.scale,
            "zero_point": self.zero_point,
            "act_scale": self.act_scale,
            "act_zero_point": self.act_zero_point,
            "act_pre_scale": self.act_pre_scale,
        }
        parts = {name: part for name, part in held.items() if part is not None}
        spec = Spec(
            kind="int8",
            data_dtype=dtype_name(self.qdata.dtype),
            shape=tuple(self.shape),
            dtype=dtype_name(self.dtype),
            block_size=self.block_size,
            activation=None if self.activation is None else self.activation.spec(),
            parts=tuple(parts),
        )
        return Weight(spec=spec, parts=parts)
