"""A device as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec

import torch


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """A device as plain data, so that which backend takes what can be tested as a table.

    Attributes:
        type: `cpu`, `cuda`, `xpu`, `meta` …
        capability: of an NVIDIA device, (9, 0) for an H100.
        vendor: `nvidia` or `amd` for a CUDA device, else empty.
        arch: of an AMD device, `gfx942`; else empty.
        features: of a CPU, what matters to a kernel: `avx2`, `avx512`, `vnni` (dot products of
            bytes that do not saturate), `bf16` (dot products of bfloat16), `amx`.
        packages: what is installed that some kernels need: `triton`.
    """

    type: str
    capability: tuple[int, int] | None = None
    vendor: str = ""
    arch: str = ""
    features: frozenset[str] = frozenset()
    packages: frozenset[str] = frozenset()

    @classmethod
    def of(cls, device: torch.device) -> DeviceInfo:
        """The device this program runs on."""
        if device.type == "cpu":
            return cls(type="cpu", features=_cpu_features())
        if device.type != "cuda" or not torch.cuda.is_available():
            return cls(type=device.type)
        return _cuda(device.index)


# What each feature of a CPU is asked of. Kernels of torch use less where ATEN_CPU_CAPABILITY says
# so, which oneDNN, who is asked for `vnni` and `bf16`, does not heed.
_CPU_FEATURES = {
    "avx2": torch.cpu._is_avx2_supported,
    "avx512": torch.cpu._is_avx512_supported,
    "vnni": torch.cpu._is_vnni_supported,
    "bf16": torch.cpu._is_avx512_bf16_supported,
    "amx": torch.cpu._is_amx_tile_supported,
}


@cache
def _cpu_features() -> frozenset[str]:
    return frozenset(name for name, has in _CPU_FEATURES.items() if has())


@cache
def _cuda(index: int | None) -> DeviceInfo:
    if torch.version.hip:
        arch = torch.cuda.get_device_properties(index).gcnArchName.partition(":")[0]
        return DeviceInfo(type="cuda", vendor="amd", arch=arch, packages=_packages())
    capability = torch.cuda.get_device_capability(index)
    return DeviceInfo(type="cuda", vendor="nvidia", capability=capability, packages=_packages())


@cache
def _packages() -> frozenset[str]:
    return frozenset(name for name in ("triton",) if find_spec(name) is not None)
