"""int8 weights that meet an int8 activation: products of codes, scaled afterwards in float32.

With VNNI by oneDNN, whose products of bytes are then exact in int32. Without it oneDNN adds pairs
of products up in int16, where 2 · 255 · 127 saturates; so there few rows are multiplied in one of
two other ways, as exact, and many go to the stream.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from functools import cache

import torch

from aoserial.kernels.activation import prescaled
from aoserial.kernels.cpu import int8pack
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.int8rows import Quantizer, is_int8
from aoserial.kernels.cpu.kernel import Attempt, Kernel, finished, is_symmetric, leave
from aoserial.kernels.cpu.native import kernel as native, library
from aoserial.kernels.cpu.native.library import Tiles
from aoserial.kernels.cpu.native.quantizing import RowCodes
from aoserial.kernels.cpu.scales import same_along_k
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.settings import extent, format_of, leaves_alone
from aoserial.kernels.spec import Spec, Weight

onednn = torch.ops.onednn

_MOST_COLUMNS = 2**16  # beyond it 255 · 128 · K may pass int32
_TILE_COLUMNS = 64  # of which those of a weight are a multiple
_SHIFT = 128  # from signed codes to those from 0, which alone oneDNN has vector code for


# an activation's codes, the activation itself, and the bias → what the layer gives
Multiply = Callable[[RowCodes, torch.Tensor, torch.Tensor | None], torch.Tensor]
# codes → products of them less their zero points, [M, N] in any floating dtype, not scaled
Product = Callable[[RowCodes], torch.Tensor]


class Int8Products(Kernel):
    """Weights without zero points; activations with them or without, dynamic or static."""

    @abstractmethod
    def _operands(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        """As `pack`, of a weight that is otherwise taken."""

    @abstractmethod
    def _multiply(self, weight: Weight) -> Multiply:
        """Products with a packed weight."""

    def _takes(self, spec: Spec, x: torch.Tensor, bias: torch.Tensor | None) -> bool:
        """Whether it multiplies such an activation."""
        del spec, x, bias
        return True

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        spec, activation = weight.spec, weight.spec.activation
        if spec.kind != "int8" or activation is None or format_of(activation) != "int8":
            return None
        extents = ("tensor",) if activation.static else ("tensor", "row")
        if extent(activation) not in extents or not same_along_k(spec):
            return None
        if 0 in spec.shape or not is_symmetric(weight):
            return None
        return self._operands(weight, device)

    def bind(self, weight: Weight) -> Attempt:
        spec, parts, activation = weight.spec, weight.parts, weight.spec.activation
        if "row_scale" not in parts or activation is None:
            return leave
        multiply, quantizer = self._multiply(weight), Quantizer(activation, parts)

        def run(x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
            if not x.numel() or not self._takes(spec, x, bias):
                return None
            scaled = prescaled(x, spec, parts)
            if leaves_alone(activation, scaled):
                return None
            return multiply(quantizer(scaled), x, bias)

        return run


class ByTiles(Int8Products):
    """Where the processor multiplies tiles of bytes, exactly; any number of rows."""

    def _operands(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        found = library.LIBRARY
        if found is None or found.tiles != Tiles.AMX or weight.spec.shape[1] % _TILE_COLUMNS:
            return None
        if not _is_narrow(weight.spec) or not _is_whole(weight):
            return None
        return {**native.contiguous(weight), "row_sums": _row_sums(weight)}

    def _takes(self, spec: Spec, x: torch.Tensor, bias: torch.Tensor | None) -> bool:
        return native.takes(x, spec.shape, bias, math.inf)

    def _multiply(self, weight: Weight) -> Multiply:
        return native.bind_codes(weight)


class ByOneDnn(Int8Products):
    """Where it multiplies bytes exactly; any number of rows."""

    def _operands(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        if "vnni" not in device.features or not _is_narrow(weight.spec) or not is_exact():
            return None
        codes = weight.parts["qdata"]
        return {
            "onednn_codes": onednn.qlinear_prepack(codes.contiguous(), None),
            "row_sums": _row_sums(weight),
        }

    def _multiply(self, weight: Weight) -> Multiply:
        parts = weight.parts

        def product(x: RowCodes) -> torch.Tensor:
            y = of_bytes(x.codes, parts["onednn_codes"])
            if x.zero_point is None:
                return y
            return y - x.zero_point.to(torch.float32)[:, None] * parts["row_sums"]

        return _scaled(product, parts["row_scale"])


class ByCompiledCode(Int8Products):
    """Few rows, by `products.c`."""

    def _operands(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        if library.LIBRARY is None or not _is_narrow(weight.spec) or not _is_whole(weight):
            return None
        return native.contiguous(weight)

    def _takes(self, spec: Spec, x: torch.Tensor, bias: torch.Tensor | None) -> bool:
        return native.takes(x, spec.shape, bias)

    def _multiply(self, weight: Weight) -> Multiply:
        return native.bind_codes(weight)


class InBfloat16(Int8Products):
    """Few rows of bfloat16, which holds integers to 256, by the kernel of `int8pack`."""

    def _operands(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        return int8pack.operands(weight) if int8pack.can_multiply(weight.spec) else None

    def _takes(self, spec: Spec, x: torch.Tensor, bias: torch.Tensor | None) -> bool:
        del spec, bias
        return x.dtype == torch.bfloat16 and x.numel() <= int8pack.MANY * x.shape[-1]

    def _multiply(self, weight: Weight) -> Multiply:
        parts = weight.parts

        def product(x: RowCodes) -> torch.Tensor:
            values = x.codes
            if x.zero_point is not None:
                values = values - x.zero_point.to(torch.float32)[:, None]
            return int8pack.multiply(values.to(torch.bfloat16), parts)

        return _scaled(product, parts["row_scale"])


def _scaled(product: Product, row_scale: torch.Tensor) -> Multiply:
    """Products of codes times the scales of both sides."""

    def multiply(rows: RowCodes, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        return finished(product(rows) * rows.scale[:, None] * row_scale, x, bias)

    return multiply


def _row_sums(weight: Weight) -> torch.Tensor:
    """Of the codes, [N]; float32 holds them."""
    return weight.parts["qdata"].sum(dim=1, dtype=torch.int32).to(torch.float32)


def _is_narrow(spec: Spec) -> bool:
    """Whether no sum can pass int32."""
    return spec.shape[1] <= _MOST_COLUMNS


def _is_whole(weight: Weight) -> bool:
    """Whether all codes are there, and less a stored zero point none is beyond 255."""
    codes, zero_point = weight.parts["qdata"], weight.parts.get("act_zero_point")
    if codes.shape != weight.spec.shape:
        return False
    return zero_point is None or is_int8(zero_point)


def of_bytes(codes: torch.Tensor, packed: torch.Tensor) -> torch.Tensor:
    """int8 codes [M, K] times prepacked ones, [M, N] in float32: sums in int32, rounded once."""
    from_zero = codes.view(torch.uint8) ^ _SHIFT
    one = torch.ones(1, device="cpu")  # whatever the default device
    zero = torch.zeros(1, dtype=torch.int32, device="cpu")
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
