"""`IntxTensor`: codes of 1 to 8 bits, one a byte, with a scale and perhaps a zero point a block."""

from __future__ import annotations

from typing import Self

import torch

from aoserial.errors import OptionError
from aoserial.kernels import Weight, quantize_intx
from aoserial.schema.builtin import INTX_TENSOR
from aoserial.tensors.activation import Activation
from aoserial.tensors.columns import ColumnParts
from aoserial.tensors.domains import ScaleOp, ZeroDomain, member
from aoserial.tensors.granularity import BlockSize, block_size
from aoserial.tensors.registration import bind


@bind(INTX_TENSOR)
class IntxTensor(ColumnParts):
    """w by `zero_domain` from codes q, scales s and zero points z, computed in the logical dtype.

    none: q s.  int: (q - z) s.  float and offset: q s + z, since codes are signed.

    qdata: int8 [..., N, K], codes -2**(b-1) to 2**(b-1) - 1 with b the bit width.
    scale: floating point, ceil(shape / block_size).
    zero_point: integer or floating point, the shape of scale; there unless zero_domain is none.
    act_pre_scale: scales the activation first (AWQ, SmoothQuant); one number, or [K].
    act_pre_scale_op: whether it multiplies the activation or divides it.
    group_index: [K], the group of each k (act-order); such a tensor is not cut along K.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    bit_width: int
    block_size: tuple[int, ...]
    zero_domain: ZeroDomain
    zero_point: torch.Tensor | None = None
    act_pre_scale: torch.Tensor | None = None
    group_index: torch.Tensor | None = None
    activation: Activation | None = None
    act_pre_scale_op: ScaleOp = ScaleOp.multiply

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        bit_width: int,
        group_size: int | None = None,
        granularity: BlockSize = "row",
        zero_domain: ZeroDomain | str = ZeroDomain.none,
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one, and that of the scales.

        The rules are those of `Int4Tensor.from_float`, with the range of the bit width, and zero
        points of `float` and `offset` at code 0. In `none` and `int`, codes, scales and zero points
        of a float32 weight are those of torchao 0.18 (`IntxUnpackedToInt8Tensor.from_hp`, symmetric
        and asymmetric); for half-precision weights see there. torchao has no `float` for these.

        Args:
            w: [..., N, K], floating point, finite.
            bit_width: 1 to 8.
            group_size: elements along K that share a scale; short for `granularity=(group_size,)`.
            granularity: what shares a scale: `"tensor"`, `"row"`, or a block such as (1, 32).

        Raises:
            QuantizationError: `w` holds an infinity or NaN, or is no floating-point tensor; another
                bit width.
            OptionError: both a group size and a granularity.
        """
        if group_size is not None:
            if granularity != "row":
                raise OptionError("group_size is short for a granularity; give one of the two")
            granularity = (group_size,)
        blocks = block_size(granularity, w.shape)
        domain = member(ZeroDomain, zero_domain, argument="zero_domain")
        qdata, scale, zero_point = quantize_intx(
            w.detach(), bit_width=bit_width, zero_domain=domain.name, block_size=blocks
        )
        return cls(
            qdata, scale, bit_width, blocks, domain, zero_point, shape=w.shape, dtype=w.dtype
        )

    def kernel_weight(self) -> Weight:
        return self._shown(
            "intx",
            zero_domain=self.zero_domain.name,
            bit_width=self.bit_width,
            act_pre_scale_op=self.act_pre_scale_op.name,
        )
