"""int8 weights that meet an int8 activation: `torch._int_mm`.

Products and sums of codes are exact in int32. Then come, in float32, the scale of the activation,
that of the weight, and the bias; and the one rounding to the dtype of the activation.

Source: torch 2.13, `_int_mm_out_cuda`: M > 16, and K and N are multiples of 8.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import PackingError
from aoserial.kernels.activation import prescaled, quantize
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.operands import exactly, finish, in_rows
from aoserial.kernels.settings import extent, format_of, weight_extent
from aoserial.kernels.spec import Spec, Weight

_LEAST_ROWS = 17
_MOST_COLUMNS = 2**16  # beyond it 255 times the sum of a row of codes may pass int32
_WHOLE = ("tensor", "row")
_ARCHES = ("gfx942", "gfx950")


class IntMM(Backend):
    """Symmetric weights with a scale a tensor or a row; activations with zero points or without."""

    name = "torch_cuda"

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        activation = spec.activation
        if activation is None or format_of(activation) != "int8":
            return "torch multiplies int8 weights by int8 activations alone"
        rows, columns = spec.shape
        new_enough = device.capability is not None and device.capability >= (8, 0)
        refused = {
            "torch multiplies int8 from sm80 on, and on gfx942 and gfx950": (
                not new_enough and device.arch not in _ARCHES
            ),
            f"N and K must be multiples of 8, not {rows} and {columns}": bool(
                rows % 8 or columns % 8
            ),
            f"sums over K = {columns} may pass int32": columns > _MOST_COLUMNS,
            f"scales of {weight_extent(spec)} would enter before the sum": (
                weight_extent(spec) not in _WHOLE
            ),
            "scales of the activation must be of all of it or of its rows": (
                extent(activation) not in _WHOLE
            ),
            "a static scale must be of the whole activation": (
                activation.static and extent(activation) != "tensor"
            ),
            "activations of one row that stay as they are need another kernel": (
                activation.skip_decode
            ),
        }
        return next((sentence for sentence, holds in refused.items() if holds), None)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        del device
        spec, parts = weight.spec, weight.parts
        zero_point = parts.get("zero_point")
        if zero_point is not None and bool((zero_point != 0).any()):
            raise PackingError("zero_point is not all 0, and torch multiplies plain int8 codes")
        scale = exactly(parts["scale"], torch.float32, "scale").reshape(1, -1)
        extra = {"operator_codes": in_rows(parts["qdata"]), "operator_scale": scale}
        if "act_zero_point" in parts or (
            spec.activation and spec.activation.mapping == "asymmetric"
        ):
            extra["row_sums"] = parts["qdata"].sum(dim=1, dtype=torch.int32)
        return Packed(spec=spec, parts={**parts, **extra}, layout="int8")

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        spec, parts = packed.spec, packed.parts
        assert spec.activation is not None  # supports() has asked for one
        found = quantize(
            prescaled(x, spec, parts),
            spec.activation,
            parts.get("act_scale"),
            parts.get("act_zero_point"),
        )
        codes = found.codes.reshape(-1, spec.shape[1])
        count = codes.shape[0]
        if count == 0:
            return x.new_zeros((*x.shape[:-1], spec.shape[0]))
        if count < _LEAST_ROWS:
            codes = F.pad(codes, (0, 0, 0, _LEAST_ROWS - count))
        sums = torch._int_mm(codes, parts["operator_codes"].t()).narrow(0, 0, count)
        if found.zero_point is not None:
            sums = sums - found.zero_point.reshape(-1, 1).to(torch.int32) * parts["row_sums"]
        scale = found.scale.to(torch.float32).reshape(-1, 1)
        return finish(sums.to(torch.float32) * scale * parts["operator_scale"], x, bias)
