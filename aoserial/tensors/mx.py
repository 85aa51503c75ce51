"""`MXTensor`: small floating-point elements with a power-of-two scale a block (OCP MX 1.0)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import torch

from aoserial.errors import FieldError, OptionError
from aoserial.kernels import ELEMENTS, Weight, element_of, quantize_mx
from aoserial.schema.builtin import MX_TENSOR
from aoserial.tensors.activation import Activation, KernelHint, ScaleMode
from aoserial.tensors.domains import member
from aoserial.tensors.granularity import block_size as blocks_of
from aoserial.tensors.hints import AnyDtype, any_dtype_name
from aoserial.tensors.registration import bind
from aoserial.tensors.weights import QuantizedWeight


@bind(MX_TENSOR)
class MXTensor(QuantizedWeight):
    """w = element · 2**(scale - 127), both cast to the logical dtype and multiplied in it.

    qdata: fp8 as its dtype [..., N, K]; fp6 as uint8 [..., N, K], a code in the low bits of each;
        fp4 as uint8 [..., N, K/2], even k in the low nibble.
    scale: uint8 (e8m0), ceil(shape / block_size), not swizzled; 255 is NaN.
    element: torch.float8_e4m3fn, float8_e5m2 or float4_e2m1fn_x2; "float6_e2m3fn" or
        "float6_e3m2fn", by name, since torch has no such dtype.
    codes_per_byte: 2 for fp4, else 1.
    """

    qdata: torch.Tensor
    scale: torch.Tensor
    element: AnyDtype
    codes_per_byte: int
    block_size: tuple[int, ...]
    activation: Activation | None = None
    kernel: KernelHint | None = None

    @classmethod
    def from_float(
        cls,
        w: torch.Tensor,
        *,
        element: AnyDtype = torch.float8_e4m3fn,
        block_size: int = 32,
        scale_mode: ScaleMode | str = ScaleMode.floor,
    ) -> Self:
        """Quantizes a weight; its dtype becomes the logical one.

        The scale of a block is a power of two that `scale_mode` chooses from max|w|: `floor` as OCP
        MX 1.0, 6.3, has it; see `kernels.arithmetic.mx_scale`. Each value is divided by it and
        rounded to the nearest element, ties to even, saturating. Codes and scales are those of
        torchao 0.18 (`MXTensor.to_mx`) but in two corners, where these are the exact ones; see
        `kernels.arithmetic.quantize_mx`.

        Args:
            w: [..., N, K], floating point, finite; K even for fp4.
            element: see the class.
            block_size: elements along K that share a scale; the last block may be smaller.

        Raises:
            QuantizationError: `w` holds an infinity or NaN, is no floating-point tensor, or K is
                odd and two elements share a byte.
            OptionError: another element or mode.
        """
        name = any_dtype_name(element)
        if name not in ELEMENTS:
            raise OptionError(f"element is {element!r}, expected one of {', '.join(ELEMENTS)}")
        mode = member(ScaleMode, scale_mode, argument="scale_mode")
        blocks = blocks_of((block_size,), w.shape)
        qdata, scale = quantize_mx(
            w.detach(), element=name, block_size=blocks, scale_mode=mode.name
        )
        packed = ELEMENTS[name].codes_per_byte
        return cls(qdata, scale, element, packed, blocks, shape=w.shape, dtype=w.dtype)

    @classmethod
    def logical_shape(
        cls, parts: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[int]:
        *leading, packed = parts["qdata"].shape
        return (*leading, attributes["codes_per_byte"] * packed)

    def kernel_weight(self) -> Weight:
        name = any_dtype_name(self.element)
        packed = element_of(name).codes_per_byte
        if self.codes_per_byte != packed:
            raise FieldError(
                f"codes_per_byte is {self.codes_per_byte}, but of {name} a byte holds {packed}"
            )
        return self._shown("mx", element=name)
