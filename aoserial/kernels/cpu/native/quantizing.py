"""An activation's int8 codes by `products.c`."""

from __future__ import annotations

from typing import NamedTuple

import torch

from aoserial.kernels.cpu.native.library import MAPPINGS, QUANTIZING, Library
from aoserial.kernels.cpu.native.threads import threads


class RowCodes(NamedTuple):
    """An activation in int8, all of it contiguous.

    Attributes:
        codes: [M, K].
        scale: of each row, float32 [M].
        zero_point: of each row, int8 [M] where products.c is to have it; None for zeros.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    zero_point: torch.Tensor | None


def quantize(
    library: Library,
    x: torch.Tensor,
    limits: tuple[int, int],
    *,
    scale: torch.Tensor,
    zero_point: torch.Tensor | None,
    mapping: str = MAPPINGS[0],
    least_scale: float = 0.0,
) -> RowCodes:
    """The codes that `activation.int8_codes` gives, in one pass.

    Args:
        x: bfloat16 or float32 [M, K], contiguous.
        limits: the lowest and the highest code.
        scale, zero_point: as `RowCodes` has them; written to where the mapping is not given.
    """
    codes = torch.empty_like(x, dtype=torch.int8)
    library.quantize(
        QUANTIZING.pack(
            x.data_ptr(),
            scale.data_ptr(),
            0 if zero_point is None else zero_point.data_ptr(),
            codes.data_ptr(),
            *x.shape,
            0,
            *limits,
            x.dtype is torch.bfloat16,
            threads(x.numel()),
            MAPPINGS.index(mapping),
            least_scale,
        )
    )
    return RowCodes(codes, scale, zero_point)


def quantize_rows(
    library: Library, x: torch.Tensor, limits: tuple[int, int], mapping: str, least_scale: float
) -> RowCodes:
    """The same with a scale and a zero point a row, those that `activation.int8_parameters` gives.

    But for scales that are infinite, which here are NaN, as all products with their rows are.
    """
    return quantize(
        library,
        x,
        limits,
        scale=x.new_empty(len(x), dtype=torch.float32),
        zero_point=x.new_empty(len(x), dtype=torch.int8) if mapping == "asymmetric" else None,
        mapping=mapping,
        least_scale=least_scale,
    )
