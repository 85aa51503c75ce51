"""The cpu backend in processes of its own, where a crash is a failure: capabilities, alignment."""

from __future__ import annotations

import pytest
import torch
from support.programs import run_program

from aoserial.kernels import DeviceInfo

PROGRAM = """
import torch
from support.products import MAKERS, check
from support.kernel_weights import int8_activation, with_activation
from aoserial.kernels import DeviceInfo, Weight
from aoserial.kernels.cpu import Cpu

def misaligned(tensor, offset):
    memory = torch.empty(tensor.nbytes + 64 + tensor.itemsize, dtype=torch.uint8)
    start = -memory.data_ptr() % 64 + offset
    moved = memory[start : start + tensor.nbytes].view(tensor.dtype).view(tensor.shape)
    return moved.copy_(tensor)

device, backend = DeviceInfo.of(torch.device("cpu")), Cpu()
torch.manual_seed(0)
w = torch.randn(48, 64, dtype=torch.bfloat16)
weights = [make(w) for make in MAKERS.values()]
weights.append(with_activation(MAKERS["int8 row"](w), int8_activation("row")))
for weight in weights:
    for offset in (1, 8, 16, 59):
        parts = {
            name: misaligned(part, offset if part.itemsize == 1 else offset // 4 * 4)
            for name, part in weight.parts.items()
        }
        moved = Weight(spec=weight.spec, parts=parts)
        packed = backend.pack(moved, device)
        for rows in (1, 3, 33):
            for dtype in (torch.bfloat16, torch.float32):
                x = misaligned(torch.randn(rows, 64, dtype=dtype), offset // 4 * 4 + 4)
                check(backend.linear(x, packed), x, moved, None)
print("done", len(weights))
"""


@pytest.mark.parametrize("capability", ["default", "avx2", "avx512"])
def test_misaligned_tensors_are_multiplied_whatever_the_capability(capability: str) -> None:
    if capability != "default" and capability not in DeviceInfo.of(torch.device("cpu")).features:
        pytest.skip(f"this processor has no {capability}")
    done = run_program(PROGRAM, seconds=None, ATEN_CPU_CAPABILITY=capability, OMP_NUM_THREADS="1")
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout.startswith("done")
