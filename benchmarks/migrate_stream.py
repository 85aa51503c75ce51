"""How fast is a migration that computes, streamed from file to file, and how much memory is it?

1 GiB of torchao's int4 weights, whose codes are moved and whose scales are turned round, and of
int8 weights, whose bytes stay; against copying the same file through Python, with fsync as ours
does. Memory is anonymous memory: the source is mapped, and its pages can be given back at any time.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path

import torch

import aoserial
from benchmarks.measure import anonymous_bytes, compare

_PARTS = 16
_PART_BYTES = 64 << 20
_SPARE_BYTES = 64 << 20
_CHUNK_BYTES = 8 << 20


def int4() -> torch.Tensor:
    rows, columns = 8192, 2 * _PART_BYTES // 8192
    return aoserial.Int4Tensor(
        torch.randint(0, 256, (rows, columns // 2), dtype=torch.uint8),
        torch.rand(rows, columns // 128, dtype=torch.bfloat16),
        (1, 128),
        aoserial.ZeroDomain.float,
        torch.rand(rows, columns // 128, dtype=torch.bfloat16),
        dtype=torch.bfloat16,
    )


def int8() -> torch.Tensor:
    rows, columns = 8192, _PART_BYTES // 8192
    codes = torch.randint(-127, 128, (rows, columns), dtype=torch.int8)
    scale = torch.rand(rows, 1, dtype=torch.bfloat16)
    return aoserial.Int8Tensor(codes, scale, (1, columns), dtype=torch.bfloat16)


_KINDS: dict[str, Callable[[], torch.Tensor]] = {"int4": int4, "int8": int8}


def main() -> None:
    for kind, make in _KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder, "old.safetensors"), Path(folder, "new.safetensors")
            weight = make()
            state = {f"layers.{i}.weight": weight.clone() for i in range(_PARTS)}
            aoserial.save(state, old, layout="torchao")
            del state, weight

            def ours(old: Path = old, new: Path = new) -> None:
                new.unlink(missing_ok=True)
                aoserial.migrate(old, new)

            def theirs(old: Path = old, new: Path = new) -> None:
                new.unlink(missing_ok=True)
                copy(old, new)

            question = f"migrate 1 GiB of torchao's {kind} / copying the file"
            compare(question, ours, theirs, at_most=2, runs=5)
            extra = int(_in_a_process_of_its_own(old, new))
        bar = 2 * _PART_BYTES + _SPARE_BYTES
        verdict = "meets" if extra <= bar else "MISSES"
        label = "  peak anonymous memory beside what was there"
        print(f"{label:<58} {extra / 2**20:6.1f} MiB  bar ≤ {bar >> 20} MiB  {verdict}")


def copy(source: Path, target: Path) -> None:
    with open(source, "rb", buffering=0) as old, open(target, "wb", buffering=0) as new:
        while data := old.read(_CHUNK_BYTES):
            new.write(data)
        os.fsync(new.fileno())


def peak(work: Callable[[], object]) -> int:
    """How far anonymous memory rises above what it was, looked at every few milliseconds."""
    before = anonymous_bytes()
    highest, done = before, threading.Event()

    def watch() -> None:
        nonlocal highest
        while not done.wait(0.003):
            highest = max(highest, anonymous_bytes())

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        work()
    finally:
        done.set()
        watcher.join()
    return highest - before


def memory(old: str, new: str) -> None:
    """Prints the peak of a migration, what is loaded once aside."""
    aoserial.save({"warm": int8()[:8].clone()}, new)
    print(peak(lambda: aoserial.migrate(old, new)))


def _in_a_process_of_its_own(*arguments: object) -> str:
    command = [sys.executable, "-m", "benchmarks.migrate_stream", *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    memory(*sys.argv[1:]) if len(sys.argv) > 1 else main()
