"""int8 codes with one scale an output, by torch's `_weight_int8pack_mm`."""

from __future__ import annotations

from functools import partial

import torch

from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.cpu.kernel import Attempt, Kernel, finished, is_symmetric, rows
from aoserial.kernels.cpu.scales import same_along_k
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Spec, Weight

aten = torch.ops.aten

# What its vector code assumes and does not check: without it the process is killed.
_COLUMNS = 16  # K is a multiple
_WEIGHT_BYTES, _X_BYTES = 16, 32  # addresses are multiples
MANY = 16  # rows of an activation above which decoding once for all of them is faster


class Int8Pack(Kernel):
    """Few rows of bfloat16, no zero points; in other dtypes the kernel is slow."""

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del device
        spec = weight.spec
        if spec.kind != "int8" or not same_along_k(spec) or spec.activation is not None:
            return None
        return operands(weight) if can_multiply(spec) and is_symmetric(weight) else None

    def bind(self, weight: Weight) -> Attempt:
        return partial(_linear, weight)


def _linear(weight: Weight, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor | None:
    if x.dtype != torch.bfloat16 or x.numel() > MANY * x.shape[-1]:
        return None
    if "row_scale" not in weight.parts:
        return None
    y = multiply(rows(x, weight), weight.parts) * weight.parts["row_scale"]
    return finished(y, x, bias)


def can_multiply(spec: Spec) -> bool:
    return 0 not in spec.shape and spec.shape[1] % _COLUMNS == 0


def operands(weight: Weight) -> dict[str, torch.Tensor]:
    """What `multiply` needs beside the weight's parts."""
    codes = weight.parts["qdata"]
    added = {"ones": torch.ones(weight.spec.shape[0], dtype=torch.bfloat16)}
    if codes.data_ptr() % _WEIGHT_BYTES or not codes.is_contiguous():
        added["aligned_codes"] = codes.clone(memory_format=torch.contiguous_format)
    return added


def multiply(x: torch.Tensor, parts: Parts) -> torch.Tensor:
    """x [M, K] in bfloat16 times the codes, [M, N], added up in float32 and rounded to bfloat16.

    The kernel takes scales in bfloat16, which would round them; so it gets ones.
    """
    if x.data_ptr() % _X_BYTES:
        x = x.clone()
    codes = parts.get("aligned_codes", parts["qdata"])
    y: torch.Tensor = aten._weight_int8pack_mm(x, codes, parts["ones"])
    return y
