"""An activation's int8 codes, by compiled code where that takes it, else by torch's operators."""

from __future__ import annotations

import torch

from aoserial.kernels.activation import (
    blocks,
    int8_codes,
    int8_least_scale,
    int8_limits,
    int8_parameters,
)
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.kernel import in_rows
from aoserial.kernels.cpu.native import library
from aoserial.kernels.cpu.native.kernel import is_plain
from aoserial.kernels.cpu.native.products import DTYPES
from aoserial.kernels.cpu.native.quantizing import RowCodes, quantize, quantize_rows
from aoserial.kernels.settings import extent
from aoserial.kernels.spec import ActivationSpec


class Quantizer:
    """Quantizes activations as a weight asks: with a scale a row, or one for all."""

    def __init__(self, spec: ActivationSpec, parts: Parts) -> None:
        self._spec, self._limits = spec, int8_limits(spec)
        self._scale, self._zero_point = parts.get("act_scale"), parts.get("act_zero_point")
        if self._zero_point is not None and is_int8(self._zero_point):
            self._zero_point = self._zero_point.to(torch.int8)
        self._has_rows = self._scale is None and extent(spec) == "row"
        self._least_scale = int8_least_scale(spec)

    def __call__(self, x: torch.Tensor) -> RowCodes:
        """The codes of x [..., K] and their scales, which are NaN where they would be infinite.

        An infinite scale is one of a row with an infinity, whose codes are all 0 times it.
        """
        x = in_rows(x)
        found = library.LIBRARY if x.dtype in DTYPES and is_plain(x) else None
        if found is not None and self._has_rows:
            mapping = self._spec.mapping
            return quantize_rows(found, x, self._limits, mapping, self._least_scale)
        scale, zero_point = int8_parameters(x, self._spec, self._scale, self._zero_point)
        scales, zeros = _of_rows(scale, x), None
        if zero_point is not None:
            zeros = _of_rows(zero_point, x)
        if found is not None and _are_native(scales, zeros):
            codes = quantize(found, x, self._limits, scale=scales, zero_point=zeros).codes
        else:
            codes = int8_codes(x, blocks(self._spec, x), scale, zero_point, self._limits)
        scales = scales.to(torch.float32)
        return RowCodes(codes, scales + (scales - scales), zeros)


def is_int8(numbers: torch.Tensor) -> bool:
    """Whether int8 holds all of them."""
    return bool((numbers.to(torch.int8) == numbers).all())


def _of_rows(numbers: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """One a row, [M], of as many or of one for all."""
    return numbers.reshape(-1).expand(len(x)).contiguous()


def _are_native(scale: torch.Tensor, zero_point: torch.Tensor | None) -> bool:
    if scale.dtype != torch.float32:
        return False
    return zero_point is None or zero_point.dtype == torch.int8
