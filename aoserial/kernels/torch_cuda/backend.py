"""The backend: for each kind of weight the operator of torch that multiplies by it."""

from __future__ import annotations

import torch

from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import Reference
from aoserial.kernels.spec import Spec, Weight
from aoserial.kernels.torch_cuda.int_mm import IntMM
from aoserial.kernels.torch_cuda.scaled_mm import ScaledMM
from aoserial.kernels.torch_cuda.tinygemm import Tinygemm

_OPERATORS: dict[str, Backend] = {"float8": ScaledMM(), "int8": IntMM(), "int4": Tinygemm()}
_MISSING = {
    "mx": "torch's operator for MX weights, of sm100 and gfx950, is not used yet",
    "nvfp4": "torch's operator for NVFP4 weights, of sm100 and sm120, is not used yet",
}


class TorchCuda(Backend):
    """`_scaled_mm` and `F.scaled_mm` for float8, `_int_mm` for int8, tinygemm for int4."""

    name = "torch_cuda"
    devices = frozenset({"cuda"})

    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or a sentence on why torch has no operator for such a weight on such a device."""
        refusal = Reference().supports(spec, device)
        if refusal is not None:
            return refusal
        if spec.kind not in _OPERATORS:
            return _MISSING.get(spec.kind, f"torch has no operator for {spec.kind} weights")
        return _OPERATORS[spec.kind].supports(spec, device)

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        return _OPERATORS[weight.spec.kind].pack(weight, device)

    def unpack(self, packed: Packed) -> Weight:
        return _OPERATORS[packed.spec.kind].unpack(packed)

    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        return _OPERATORS[packed.spec.kind].linear(x, packed, bias)
