"""`NVFP4Tensor`: fp4 elements, an e4m3 scale a block of 16, perhaps one for the whole tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Self

import torch

from aoserial.errors import OptionError
from aoserial.kernels import (
    NVFP4_BLOCK,
    Weight,
    check_tensor_scale,
    matrix_scale,
    quantize_nvfp4,
)
from aoserial.schema.builtin import NVFP4_TENSOR
from aoserial.schema.shapes import Rule
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors.activation import Activation, KernelHint
from aoserial.tensors.domains import ScaleOp
from aoserial.tensors.granularity import block_size
from aoserial.tensors.registration import bind
from aoserial.tensors.weights import QuantizedWeight


@bind(NVFP4_TENSOR)
class NVFP4Tensor(QuantizedWeight):
    """w = element · (per_tensor_scale · scale), or element · (scale / per_tensor_scale), float32.

    qdata: uint8 [..., N, K/2], fp4 e2m1 codes, even k in the low nibble.
    scale: float8_e4m3fn, ceil(shape / block_size), not swizzled.
    per_tensor_scale: one number, or one a matrix of a stack [..., 1, 1]; absent means 1.
    act_per_tensor_scale: the scale of the whole activation, where it is known beforehand.
    scale_product_dtype: in which the scales are multiplied: the logical dtype in torchao up to
        0.17, float32 in 0.18.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    block_size: tuple[int, ...]
    per_tensor_scale: torch.Tensor | None = None
    act_per_tensor_scale: torch.Tensor | None = None
    per_tensor_scale_op: ScaleOp = ScaleOp.multiply
    scale_product_dtype: torch.dtype = torch.float32
    activation: Activation | None = None
    kernel: KernelHint | None = None

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        per_tensor_scale: torch.Tensor | Literal["auto"] | None = None,
    ) -> Self:
        """Quantizes a weight in blocks of 16 along K; its dtype becomes the logical one.

        A block's scale is max|w| / 6 / per_tensor_scale, rounded to e4m3 within 2**-6 to 448; each
        value is multiplied by the reciprocal of both scales and rounded to the nearest element,
        ties to even, saturating. Codes and scales are those of torchao 0.18
        (`NVFP4Tensor.to_nvfp4`), which computes in float32 too.

        Args:
            w: [..., N, K], floating point, finite, K even.
            per_tensor_scale: None for scales of blocks alone. `"auto"` for max|w| / (448 · 6), so
                that these use the whole range of e4m3; of a stack, one for each matrix. Or the
                scale: one number, or [..., 1, 1].

        Raises:
            QuantizationError: `w` holds an infinity or NaN, is no floating-point tensor, or K is
                odd; a scale of another shape, or that is not finite or below 2**-120.
            OptionError: another word than `"auto"`.
        """
        blocks = block_size((NVFP4_BLOCK,), w.shape)
        w = w.detach()
        scale_of_tensor: torch.Tensor | None = None
        if isinstance(per_tensor_scale, torch.Tensor):
            scale_of_tensor = check_tensor_scale(per_tensor_scale, w)
        elif per_tensor_scale == "auto":
            scale_of_tensor = matrix_scale(w)
        elif per_tensor_scale is not None:
            raise OptionError(
                f"per_tensor_scale is {per_tensor_scale!r}, expected 'auto' or a tensor"
            )
        qdata, scale = quantize_nvfp4(w, scale_of_tensor, block_size=blocks)
        return cls(qdata, scale, blocks, scale_of_tensor, shape=w.shape, dtype=w.dtype)

    @classmethod
    def logical_shape(
        cls, parts: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[int]:
        del attributes
        *leading, packed = parts["qdata"].shape
        return (*leading, 2 * packed)

    def part_rule(self, name: str) -> Rule | None:
        """The scales of a whole tensor are one number, or one a matrix, and then follow a stack."""
        of_whole = name in ("per_tensor_scale", "act_per_tensor_scale")
        scale = getattr(self, name) if of_whole else None
        if scale is not None and scale.dim() == self.dim():
            return ("...", "1", "1")
        return super().part_rule(name)

    def kernel_weight(self) -> Weight:
        return self._shown(
            "nvfp4",
            scale_op=self.per_tensor_scale_op.name,
            scale_dtype=dtype_name(self.scale_product_dtype),
        )
