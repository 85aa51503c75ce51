"""Small floating-point formats: the elements of MX and NVFP4 blocks.

A code is sign, exponent and mantissa, from the high bit to the low. With the exponent field e > 0
it stands for ±2**(e - bias) · 1.m, with e = 0 for ±2**(1 - bias) · 0.m. The formats of four and six
bits have no infinities and no NaN (OCP MX 1.0, 5.3); those of eight bits are torch's dtypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch

from aoserial.errors import FieldError
from aoserial.kernels.arithmetic.float8 import cast_float8


@dataclass(frozen=True, kw_only=True)
class Element:
    """A format of 4, 6 or 8 bits.

    Attributes:
        dtype: the torch dtype of its codes; None for one that torch cannot compute with, whose
            codes are uint8, each in the low bits of a byte.
        codes_per_byte: when stored.
    """

    exponent_bits: int
    mantissa_bits: int
    dtype: torch.dtype | None = None
    codes_per_byte: int = 1

    @cached_property
    def magnitudes(self) -> tuple[float, ...]:
        """What the codes without a sign stand for, in order, each larger than the one before."""
        bias = 2 ** (self.exponent_bits - 1) - 1
        step = 2.0**-self.mantissa_bits
        return tuple(
            (mantissa * step + (exponent > 0)) * 2.0 ** (max(exponent, 1) - bias)
            for exponent in range(2**self.exponent_bits)
            for mantissa in range(2**self.mantissa_bits)
        )

    @cached_property
    def largest(self) -> float:
        """The largest finite value."""
        return self.magnitudes[-1] if self.dtype is None else torch.finfo(self.dtype).max


ELEMENTS = {
    "float8_e4m3fn": Element(exponent_bits=4, mantissa_bits=3, dtype=torch.float8_e4m3fn),
    "float8_e5m2": Element(exponent_bits=5, mantissa_bits=2, dtype=torch.float8_e5m2),
    "float6_e2m3fn": Element(exponent_bits=2, mantissa_bits=3),
    "float6_e3m2fn": Element(exponent_bits=3, mantissa_bits=2),
    "float4_e2m1fn_x2": Element(exponent_bits=2, mantissa_bits=1, codes_per_byte=2),
}
FP4 = ELEMENTS["float4_e2m1fn_x2"]


def element_of(name: str) -> Element:
    """The format of an element dtype's name.

    Raises:
        FieldError: it is none of `ELEMENTS`.
    """
    if name not in ELEMENTS:
        raise FieldError(f"{name} is no element of MX; those are {', '.join(ELEMENTS)}")
    return ELEMENTS[name]


def decode(codes: torch.Tensor, element: Element) -> torch.Tensor:
    """What codes stand for, in float32, exactly. A byte that is no code gives NaN."""
    if element.dtype is not None:
        return codes.to(torch.float32)
    signed = (*element.magnitudes, *(-value for value in element.magnitudes))
    table = torch.tensor(signed + (math.nan,) * (256 - len(signed)), device=codes.device)
    return table[codes.to(torch.int32)]


def encode(values: torch.Tensor, element: Element) -> torch.Tensor:
    """The nearest codes, ties to even; what is beyond the range becomes the largest.

    Between two powers of two codes are evenly spaced, so a value is counted in those steps, which
    is exact, and rounded; a value that rounds up to the next power of two is on its first code.

    Args:
        values: float32.

    Returns:
        Codes, one an element; the sign of zero is kept.
    """
    if element.dtype is not None:
        return cast_float8(values, element.dtype)
    bits, count = element.mantissa_bits, len(element.magnitudes)
    magnitude = values.abs().clamp(max=element.largest)
    # the exponent field of float32, that of the smallest normal code where the value is smaller
    least = 128 - (2 ** (element.exponent_bits - 1) - 1)
    exponent = (magnitude.view(torch.int32) >> 23).clamp(min=least)
    per_value = ((254 + bits - exponent) << 23).view(torch.float32)  # 2**(bits - exponent)
    steps = (magnitude * per_value).round().to(torch.int32)  # round() takes ties to even
    codes: torch.Tensor = (steps + ((exponent - least) << bits)).clamp(min=0)  # NaN has no step
    sign = values.view(torch.int32) >> 31 & count  # all ones or none, so the code's own bit
    return (codes + sign).to(torch.uint8)
