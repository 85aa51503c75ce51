"""What a small floating-point format may be off by."""

from __future__ import annotations

import torch

from aoserial.kernels.arithmetic import Element


def half_step(values: torch.Tensor, unit: torch.Tensor, element: Element) -> torch.Tensor:
    """Half the distance of two neighbouring elements where each value lies.

    Args:
        unit: what an element of 1 stands for, by the scale of its block.
    """
    least_exponent = 2 - 2 ** (element.exponent_bits - 1)
    exponent = (values.abs() / unit).log2().floor().clamp(min=least_exponent)
    return 2.0 ** (exponent - element.mantissa_bits) * unit / 2
