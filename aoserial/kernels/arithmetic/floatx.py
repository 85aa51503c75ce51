"""Floating point of 3 to 7 bits with a scale a block, one code a byte."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from aoserial.errors import FieldError
from aoserial.kernels.arithmetic.blocks import expand
from aoserial.kernels.arithmetic.elements import Element, decode
from aoserial.kernels.arithmetic.slabs import by_slabs


@by_slabs
def dequantize_floatx(
    qdata: torch.Tensor,
    scale: torch.Tensor,
    *,
    exponent_bits: int,
    mantissa_bits: int,
    block_size: Sequence[int],
    dtype: torch.dtype,
) -> torch.Tensor:
    """w = value of the code · scale, multiplied in float32 and rounded once to `dtype`.

    Args:
        qdata: uint8 [..., N, K]: sign, exponent and mantissa in the low bits. A byte that is no
            code stands for NaN.
        scale: floating point, ceil(shape / block_size).

    Raises:
        FieldError: a format of more than 7 bits, or without an exponent.

    Source: torchao 0.4, `from_scaled_tc_fpx`; 0.5 to 0.15, `dequantize_affine_floatx`.
    """
    if exponent_bits < 1 or mantissa_bits < 0 or exponent_bits + mantissa_bits > 6:
        raise FieldError(
            f"{exponent_bits} bits of exponent and {mantissa_bits} of mantissa are no format of "
            f"at most 7 bits"
        )
    values = decode(qdata, Element(exponent_bits=exponent_bits, mantissa_bits=mantissa_bits))
    return (values * expand(scale.to(torch.float32), block_size, qdata.shape)).to(dtype)
