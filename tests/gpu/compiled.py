"""Triton's kernels compiled ahead of time, for devices that are not here.

    python tests/gpu/compiled.py              every kernel and tile for every target
    python tests/gpu/compiled.py sm80 gfx942 --quick    some, for these

Each is compiled to a binary, with the arguments of a real layer; it has to hold the instruction
that multiplies matrices, and to fit the shared memory of the device. Exit status 1 if not.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).resolve()
sys.path[:0] = [str(HERE.parents[2]), str(HERE.parents[1])]

from support.kernel_weights import FORMATS, weight_of  # noqa: E402

from aoserial.kernels import DeviceInfo, Packed  # noqa: E402
from aoserial.kernels.activation import quantize  # noqa: E402
from aoserial.kernels.triton import Triton  # noqa: E402
from aoserial.kernels.triton.launch import Call, float8_by_float8, weight_only  # noqa: E402

KIB = 1024


@dataclass(frozen=True)
class Target:
    """What Triton calls a device, and what it has.

    Attributes:
        shared_bytes: memory that a program may have. CUDA C++ Programming Guide, "Technical
            Specifications per Compute Capability"; AMD CDNA 3 and 4 instruction sets, LDS.
        instructions: names, of which each product has one: that of wide tiles, that of narrow ones.
    """

    backend: str
    arch: int | str
    warp: int
    shared_bytes: int
    instructions: tuple[str, ...]
    assembly: str = "ptx"


TARGETS = {
    "sm80": Target("cuda", 80, 32, 163 * KIB, ("mma.sync",)),
    "sm89": Target("cuda", 89, 32, 99 * KIB, ("mma.sync",)),
    "sm90": Target("cuda", 90, 32, 227 * KIB, ("wgmma", "mma.sync")),
    "sm100": Target("cuda", 100, 32, 227 * KIB, ("tcgen05.mma", "mma.sync")),
    "sm120": Target("cuda", 120, 32, 99 * KIB, ("mma.sync",)),
    "gfx942": Target("hip", "gfx942", 64, 64 * KIB, ("v_mfma",), "amdgcn"),
    "gfx950": Target("hip", "gfx950", 64, 160 * KIB, ("v_mfma",), "amdgcn"),
}
# Formats, and the rows of the activation: one number for each tile, where the kernel is another.
COMPILED = {
    "float8 row": (1, 64, 256),
    "float8 row, dynamic": (1, 64, 256),
    "int4 g128": (1, 64, 256),
    "int4 g128, int zero point": (1,),
    "int4 g128, float zero point": (1,),
    "intx 4 bits": (1,),
    "int4 g32, offset zero point": (1,),
    "int8 row": (1,),
    "int8 g32": (1,),
    "float8 tensor": (1,),
    "float8 tensor, dynamic": (1,),
    "float8 e5m2 row": (1,),
    "float8 128x128": (256,),
    "float8 128x128, dynamic": (256,),
}
QUICK = ("float8 row", "float8 row, dynamic", "int4 g128")

_TYPES = {
    torch.bfloat16: "*bf16",
    torch.float16: "*fp16",
    torch.float32: "*fp32",
    torch.uint8: "*u8",
    torch.float8_e4m3fn: "*fp8e4nv",
}


DTYPES = (torch.bfloat16, torch.float32)  # of the activation; products of float32 are no matrix's


def calls(device: DeviceInfo, *, quick: bool) -> Iterator[tuple[str, Call]]:
    """A name and a call for every format and tile; of `QUICK` the last tile alone."""
    for name, dtype in product(QUICK if quick else COMPILED, DTYPES):
        if dtype == torch.float32 and name != "int4 g128":
            continue
        weight = weight_of(name)
        assert Triton().supports(weight.spec, device) is None, name
        packed = Triton().pack(weight, device)
        bias = torch.zeros(weight.spec.shape[0], dtype=dtype)
        for m in COMPILED[name][-1:] if quick else COMPILED[name]:
            x = torch.zeros(m, weight.spec.shape[1], dtype=dtype)
            suffix = ", float32" if dtype == torch.float32 else ""
            yield f"{name}, M = {m}{suffix}", _call(x, packed, bias)


def _call(x: torch.Tensor, packed: Packed, bias: torch.Tensor) -> Call:
    if packed.spec.activation is None:
        return weight_only(x, packed, bias)
    found = quantize(x, packed.spec.activation)
    return float8_by_float8(found.codes, found.scale.reshape(-1), packed, bias, x.dtype)


def compile_for(call: Call, target: Target) -> Any:
    """The compiled kernel, with `asm` and `metadata`."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from aoserial.kernels.triton import device_code

    signature, constants = {}, call.resolved()
    for name, value in call.arguments.items():
        if isinstance(value, torch.Tensor):
            signature[name] = _TYPES[value.dtype]
        elif isinstance(value, int):
            signature[name] = "i32"
        else:
            constants[name] = value
    signature |= dict.fromkeys(constants, "constexpr")
    kernel = getattr(device_code, call.kernel)
    order = {name: signature[name] for name in kernel.arg_names}
    # as a launch has it: there is another kernel where addresses and lengths are multiples of 16
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, name in enumerate(order)
        if isinstance(value := call.arguments.get(name), torch.Tensor)
        or (isinstance(value, int) and value % 16 == 0 and name != "M")
    }
    source = ASTSource(kernel, order, constexprs=constants, attrs=aligned)
    options = {"num_warps": call.tiling.warps, "num_stages": call.tiling.stages}
    return triton.compile(
        source, target=GPUTarget(target.backend, target.arch, target.warp), options=options
    )


def main(names: list[str]) -> int:
    quick, failures = "--quick" in names, 0
    for name in [name for name in names if name != "--quick"] or TARGETS:
        target, device = TARGETS[name], DeviceInfo.named(name)
        for what, call in calls(device, quick=quick):
            kernel = compile_for(call, target)
            assembly = kernel.asm[target.assembly]
            found = [each for each in target.instructions if each in assembly]
            shared = kernel.metadata.shared
            fits = shared <= target.shared_bytes
            holds = fits and (bool(found) or call.constants.get("DOT") == "float32")
            failures += not holds
            print(
                f"{'ok' if holds else 'FAILED':6} {name:7} {call.kernel:17} {what:38} "
                f"{shared / KIB:5.1f} of {target.shared_bytes // KIB} KiB  {', '.join(found)}",
                flush=True,
            )
    print(f"{failures} failures")
    return int(failures > 0)


if __name__ == "__main__":
    assert set(COMPILED) <= set(FORMATS)
    raise SystemExit(main(sys.argv[1:]))
