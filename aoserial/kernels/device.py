"""A device as plain data."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import OptionError


@dataclass(frozen=True, kw_only=True, slots=True)
class DeviceInfo:
    """A device as plain data, so that which backend takes what can be tested as a table.

    Attributes:
        type: `cpu`, `cuda`, `xpu`, `meta` …
        capability: of an NVIDIA device, (9, 0) for an H100.
        vendor: `nvidia` or `amd` for a CUDA device, else empty.
        arch: of an AMD device, `gfx942`; else empty.
        features: of a CPU, what matters to a kernel: `avx2`, `avx512`, `vnni` (dot products of
            bytes that do not saturate), `bf16` (dot products of bfloat16), `amx`. Of an NVIDIA
            device: `scaled_mm_v2` (`F.scaled_mm` over cuBLASLt 12.9 or newer, which multiplies
            float8 with scales a row or a block).
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

    @classmethod
    def named(cls, name: str, *, packages: frozenset[str] = frozenset({"triton"})) -> DeviceInfo:
        """A device of `DEVICES`, `sm90` for an H100, with what is installed for it.

        Raises:
            OptionError: there is none of that name.
        """
        if name not in DEVICES:
            raise OptionError(f"there is no device {name!r}; there are {', '.join(DEVICES)}")
        device = DEVICES[name]
        return replace(device, packages=packages) if device.type == "cuda" else device


def _nvidia(major: int, minor: int) -> DeviceInfo:
    return DeviceInfo(
        type="cuda",
        vendor="nvidia",
        capability=(major, minor),
        features=frozenset({"scaled_mm_v2"}),
    )


def _amd(arch: str) -> DeviceInfo:
    return DeviceInfo(type="cuda", vendor="amd", arch=arch)


_AVX2 = frozenset({"avx2"})

# Devices that people have, by the names of the compilers' targets.
DEVICES = {
    "sm80": _nvidia(8, 0),  # A100
    "sm89": _nvidia(8, 9),  # RTX 4090, L40
    "sm90": _nvidia(9, 0),  # H100, H200
    "sm100": _nvidia(10, 0),  # B200
    "sm120": _nvidia(12, 0),  # RTX 5090
    "gfx942": _amd("gfx942"),  # MI300
    "gfx950": _amd("gfx950"),  # MI350
    "xpu": DeviceInfo(type="xpu"),
    "cpu-avx2": DeviceInfo(type="cpu", features=_AVX2),
    "cpu-avx512": DeviceInfo(type="cpu", features=_AVX2 | {"avx512", "vnni", "bf16"}),
}


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
        return replace(_amd(arch), packages=_packages())
    features = frozenset({"scaled_mm_v2"}) if _has_scaled_mm_v2() else frozenset()
    device = _nvidia(*torch.cuda.get_device_capability(index))
    return replace(device, features=features, packages=_packages())


def _has_scaled_mm_v2() -> bool:
    """Whether `F.scaled_mm` is there, and cuBLASLt is that of CUDA 12.9 or newer."""
    cuda = [int(number) for number in (torch.version.cuda or "0").split(".")[:2]]
    return hasattr(F, "scaled_mm") and cuda >= [12, 9]


@cache
def _packages() -> frozenset[str]:
    return frozenset(name for name in ("triton",) if find_spec(name) is not None)
