"""The threads that stream large weights: they leave torch's settings and modes as they are."""

from __future__ import annotations

import threading

import pytest
import torch
from support.products import check
from support.programs import run_program

from aoserial import Float8Tensor, NVFP4Tensor
from aoserial.kernels import DeviceInfo, Weight
from aoserial.kernels.cpu import Cpu, stream
from aoserial.kernels.cpu.scratch import Scratch

pytestmark = pytest.mark.usefixtures("either")

CPU = DeviceInfo.of(torch.device("cpu"))
N, K = 600, 512  # more elements than are streamed without threads


def made() -> Weight:
    torch.manual_seed(0)
    return Float8Tensor.from_float(torch.randn(N, K)).kernel_weight()


def product(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    return Cpu().linear(x, Cpu().pack(weight, CPU))


@pytest.mark.usefixtures("without_native")
def test_no_buffer_is_as_large_as_the_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "SCRATCH", scratch := Scratch())
    monkeypatch.setattr(stream, "_CHUNK_BYTES", 1 << 16)
    monkeypatch.setattr(stream, "_SMALL", 2 * N * K)
    whole = Float8Tensor.from_float(torch.randn(N, K), granularity="tensor").kernel_weight()
    x = torch.randn(3, K)
    check(product(x, whole), x, whole, None)
    assert scratch.of(torch.float32, 1).untyped_storage().nbytes() <= 1 << 16


def test_large_weights_are_within_the_bound() -> None:
    blocks = Float8Tensor.from_float(torch.randn(N, K), granularity=(40, 128)).kernel_weight()
    fp4 = NVFP4Tensor.from_float(torch.randn(N, K)).kernel_weight()
    whole = Float8Tensor.from_float(torch.randn(N, K), granularity="tensor").kernel_weight()
    for weight in (made(), blocks, fp4, whole):
        for rows in (0, 1, 3, 70):
            x = torch.randn(rows, K)
            check(product(x, weight), x, weight, None)


def test_inference_mode_and_what_was_made_outside_it_go_together() -> None:
    weight, x = made(), torch.randn(2, K)
    expected = product(x, weight)
    with torch.inference_mode():
        assert torch.equal(product(torch.clone(x), weight), expected)
    assert torch.equal(product(x, weight), expected)


def test_several_threads_may_multiply_at_once() -> None:
    weight = made()
    xs = [torch.randn(2, K) for _ in range(4)]
    found: dict[int, torch.Tensor] = {}

    def work(index: int) -> None:
        for _ in range(5):
            found[index] = product(xs[index], weight)

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for index, x in enumerate(xs):
        check(found[index], x, weight, None)


PROGRAM = """
import os, threading
import torch
torch.set_num_threads(2)
from tests.kernels.test_cpu_workers import made, product
weight, x = made(), torch.randn(1, 512)
expected = product(x, weight)
counts = [torch.get_num_threads()]
other = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
other.start(); other.join()
assert counts == [2, 2], counts
child = os.fork()
if child == 0:
    torch.set_num_threads(2)
    from aoserial.kernels.cpu.workers import WORKERS
    seen = []
    WORKERS.run(lambda start, stop: seen.append((start, stop)), [(0, 1), (1, 2)])
    os._exit(0 if sorted(seen) == [(0, 1), (1, 2)] else 1)
assert os.waitpid(child, 0)[1] == 0
print("done")
"""


def test_torchs_own_threads_stay_and_a_fork_starts_its_own() -> None:
    done = run_program(PROGRAM)
    assert done.stdout == "done\n", done.stderr
