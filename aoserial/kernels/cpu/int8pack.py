"""int8 codes with one scale an output, by torch's `_weight_int8pack_mm`."""

from __future__ import annotations

import torch

from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.kernel import Kernel, rows
from aoserial.kernels.cpu.scales import same_along_k
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Weight

aten = torch.ops.aten

# What its vector code assumes and does not check: without it the process is killed.
_COLUMNS = 16  # K is a multiple
_WEIGHT_BYTES, _X_BYTES = 16, 32  # addresses are multiples
_MANY = 16  # rows of an activation above which decoding once for all of them is faster


class Int8Pack(Kernel):
    """Few rows of bfloat16, no zero points.

    The kernel takes scales in bfloat16, which would round them: so it gets ones, and the product
    is multiplied by the scales in float32.
    """

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        spec, codes = weight.spec, weight.parts["qdata"]
        if spec.kind != "int8" or not same_along_k(spec) or "zero_point" in weight.parts:
            return None
        if 0 in spec.shape or spec.shape[1] % _COLUMNS or spec.activation is not None:
            return None
        added = {"ones": torch.ones(spec.shape[0], dtype=torch.bfloat16)}
        if codes.data_ptr() % _WEIGHT_BYTES or not codes.is_contiguous():
            added["aligned"] = codes.clone(memory_format=torch.contiguous_format)
        return added

    def linear(self, x: torch.Tensor, weight: Weight) -> torch.Tensor | None:
        parts = weight.parts
        few = x.numel() <= _MANY * x.shape[-1]
        if not few or x.dtype != torch.bfloat16 or "row_scale" not in parts:
            return None
        x = rows(x, weight)
        if x.data_ptr() % _X_BYTES:
            x = x.clone()
        codes = parts.get("aligned", parts["qdata"])
        y: torch.Tensor = aten._weight_int8pack_mm(x, codes, parts["ones"])
        return y * parts["row_scale"]
