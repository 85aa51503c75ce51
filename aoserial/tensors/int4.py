"""`Int4Tensor`: 4-bit codes, two a byte, with a scale and perhaps a zero point a block."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from aoserial.kernels import Weight, quantize_int4
from aoserial.schema.builtin import INT4_TENSOR
from aoserial.tensors.activation import Activation
from aoserial.tensors.columns import ColumnParts
from aoserial.tensors.domains import ScaleOp, ZeroDomain, member
from aoserial.tensors.granularity import block_size
from aoserial.tensors.registration import bind


@bind(INT4_TENSOR)
class Int4Tensor(ColumnParts):
    """w by `zero_domain` from codes q, scales s and zero points z.

    none: (q - 8) s.  int: (q - z) s.  float: (q - 8) s + z.  offset: q s + z.
    Computed in float32, or, where narrow_arithmetic is set, each step in the result's dtype.

    qdata: uint8 [..., N, K/2], codes 0 to 15, even k in the low nibble.
    scale: floating point, ceil(shape / block_size).
    zero_point: integer or floating point, the shape of scale; there unless zero_domain is none.
    act_pre_scale: scales the activation first (AWQ, SmoothQuant); one number, or [K].
    act_pre_scale_op: whether it multiplies the activation or divides it.
    group_index: [K], the group of each k (act-order); such a tensor is not cut along K.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    block_size: tuple[int, ...]
    zero_domain: ZeroDomain
    zero_point: torch.Tensor | None = None
    act_pre_scale: torch.Tensor | None = None
    group_index: torch.Tensor | None = None
    activation: Activation | None = None
    act_pre_scale_op: ScaleOp = ScaleOp.multiply
    narrow_arithmetic: bool = False

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        group_size: int = 128,
        zero_domain: ZeroDomain | str = ZeroDomain.none,
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one, and that of the scales.

        none     scale = max|w| / 7.5
        int      scale = (max(w, 0) - min(w, 0)) / 15; the zero point is the code of 0, int8
        float    scale = (max(w) - min(w)) / 15; the zero point is the value of code 8
        offset   the same scale; the zero point is the value of code 0

        Of a float32 weight these are the codes, scales and zero points of torchao 0.18
        (`choose_qparams_affine`, symmetric and asymmetric; `_choose_qparams_affine_tinygemm`).
        torchao computes with bfloat16 and float16 weights in their own dtype, this in float32: some
        of its codes are the second nearest, all of these are the nearest.

        Args:
            w: [..., N, K], floating point, finite, K even.
            group_size: elements along K that share a scale; the last group may be smaller.

        Raises:
            QuantizationError: `w` holds an infinity or NaN, is no floating-point tensor, or K is
                odd.
        """
        blocks = block_size((group_size,), w.shape)
        domain = member(ZeroDomain, zero_domain, argument="zero_domain")
        qdata, scale, zero_point = quantize_int4(
            w.detach(), zero_domain=domain.name, block_size=blocks
        )
        return cls(qdata, scale, blocks, domain, zero_point, shape=w.shape, dtype=w.dtype)

    @classmethod
    def logical_shape(
        cls, parts: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[int]:
        del attributes
        *leading, packed = parts["qdata"].shape
        return (*leading, 2 * packed)

    def kernel_weight(self) -> Weight:
        return self._shown(
            "int4",
            zero_domain=self.zero_domain.name,
            act_pre_scale_op=self.act_pre_scale_op.name,
            narrow_arithmetic=self.narrow_arithmetic,
        )
