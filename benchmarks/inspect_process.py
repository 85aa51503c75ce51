"""How long does the whole process `aoserial inspect FILE` take?

There is no peer that does this; the bars are absolute: 0.2 s for a small file, 1 s for 40,000
tensors. A Python that starts and does nothing is measured beside it, to judge the machine.
"""

from __future__ import annotations

import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aoserial
from benchmarks.samples import many_small


def seconds(command: list[str], runs: int = 7) -> float:
    times = []
    for _ in range(runs + 1):
        start = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:])


def main() -> None:
    command = shutil.which("aoserial", path=str(Path(sys.executable).parent))
    assert command, "the aoserial script is not installed beside this Python"
    bare = seconds([sys.executable, "-c", "pass"])
    print(f"{'a Python that does nothing':<58} {bare:8.3f} s")
    with tempfile.TemporaryDirectory() as folder:
        for count, bar in ((4, 0.2), (40_000, 1.0)):
            path = Path(folder) / f"{count}.safetensors"
            aoserial.save(many_small(count), path, durability="rename")
            spent = seconds([command, "inspect", str(path)])
            verdict = "meets" if spent <= bar else "MISSES"
            question = f"aoserial inspect, {count:,} tensors"
            print(f"{question:<58} {spent:8.3f} s  bar ≤ {bar} s  {verdict}")


if __name__ == "__main__":
    main()
