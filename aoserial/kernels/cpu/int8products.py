"""int8 weights that meet an int8 activation: products of codes, scaled afterwards in float32.

With VNNI by oneDNN, whose products of bytes are then exact in int32. Without it oneDNN adds pairs
of products up in int16, where 2 · 255 · 127 saturates; so there few rows of codes are multiplied by
compiled code of our own, exact too, or, as bfloat16, which holds integers to 256, by the kernel of
`int8pack`; and many go to the stream.
"""

from __future__ import annotations

from functools import cache

import torch

from aoserial.kernels.activation import prescaled, quantize
from aoserial.kernels.cpu import int8pack
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.kernel import Kernel, is_symmetric
from aoserial.kernels.cpu.native import kernel as native, library
from aoserial.kernels.cpu.scales import same_along_k
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.settings import extent, format_of, leaves_alone
from aoserial.kernels.spec import Weight

onednn = torch.ops.onednn

_MOST_COLUMNS = 2**16  # beyond it 255 · 128 · K may pass int32
_SHIFT = 128  # from signed codes to those from 0, which alone oneDNN has vector code for


class Int8Products(Kernel):
    """Weights without zero points; activations with them or without, dynamic or static."""

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        spec, activation = weight.spec, weight.spec.activation
        if spec.kind != "int8" or activation is None or format_of(activation) != "int8":
            return None
        extents = ("tensor",) if activation.static else ("tensor", "row")
        if extent(activation) not in extents or not same_along_k(spec):
            return None
        if 0 in spec.shape or not is_symmetric(weight):
            return None
        exact = spec.shape[1] <= _MOST_COLUMNS
        if "vnni" in device.features and exact and is_exact():
            sums = weight.parts["qdata"].sum(dim=1, dtype=torch.int32)
            codes = onednn.qlinear_prepack(weight.parts["qdata"].contiguous(), None)
            return {"onednn_codes": codes, "row_sums": sums.to(torch.float32)}
        if library.LIBRARY is not None and exact and _is_whole(weight):
            return native.contiguous(weight)
        return int8pack.operands(weight) if int8pack.can_multiply(spec) else None

    def linear(self, x: torch.Tensor, weight: Weight) -> torch.Tensor | None:
        spec, parts = weight.spec, weight.parts
        if not x.numel() or "row_scale" not in parts or not _takes(x, parts):
            return None
        scaled = prescaled(x, spec, parts)
        if spec.activation is None or leaves_alone(spec.activation, scaled):
            return None
        found = quantize(
            scaled, spec.activation, parts.get("act_scale"), parts.get("act_zero_point")
        )
        codes = found.codes.reshape(-1, spec.shape[1])
        zero_point = found.zero_point
        if zero_point is not None:
            zero_point = zero_point.reshape(-1, 1)
        if "onednn_codes" in parts:
            y = of_bytes(codes, parts["onednn_codes"])
            if zero_point is not None:
                y = y - zero_point.to(torch.float32) * parts["row_sums"]
        elif "ones" in parts:
            values = codes if zero_point is None else codes - zero_point.to(torch.float32)
            y = int8pack.multiply(values.to(torch.bfloat16), parts)
        else:
            wide = codes.to(torch.int16)
            values = wide if zero_point is None else (wide - zero_point).to(torch.int16)
            y = native.multiply_codes(values, parts)
        scale = found.scale.reshape(-1, 1).to(torch.float32)
        scale = scale + (scale - scale)  # NaN where infinite, as are codes of 0 times it
        return y * scale * parts["row_scale"]


def _takes(x: torch.Tensor, parts: Parts) -> bool:
    if "onednn_codes" in parts:
        return True
    if "ones" in parts:
        return x.dtype == torch.bfloat16 and x.numel() <= int8pack.MANY * x.shape[-1]
    return native.takes(x)


def _is_whole(weight: Weight) -> bool:
    """Whether all codes are there, and less a stored zero point none is beyond 255."""
    codes, zero_point = weight.parts["qdata"], weight.parts.get("act_zero_point")
    if codes.shape != weight.spec.shape:
        return False
    return zero_point is None or bool((zero_point.to(torch.int8) == zero_point).all())


def of_bytes(codes: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """int8 codes [M, K] times prepacked ones, [M, N] in float32: sums in int32, rounded once."""
    from_zero = codes.view(torch.uint8) ^ _SHIFT
    one, zero = torch.ones(1), torch.zeros(1, dtype=torch.int32)
    y: torch.Tensor = onednn.qlinear_pointwise(
        from_zero, 1.0, _SHIFT, packed, one, zero, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return y


@cache
def is_exact() -> bool:
    """Whether oneDNN multiplies the largest codes exactly; settings can keep it from VNNI."""
    for rows in (1, 32):
        codes = torch.full((rows, 64), 127, dtype=torch.int8)
        weight = torch.full((64, 64), 127, dtype=torch.int8)
        y = of_bytes(codes, onednn.qlinear_prepack(weight, None))
        if not bool((y == 64 * 127 * 127).all()):
            return False
    return True
