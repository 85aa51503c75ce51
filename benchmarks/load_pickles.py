"""How long does it take to load a pickle of 4,000 subclasses, and to open a large plain one?

Against `torch.load(weights_only=True)` of the same file: written by torchao 0.18, whose classes
torch then builds, and by us, where it calls our function. At 40,000 the time should be ten
times that of 4,000. A plain file of 2 GiB is opened mapped: beside the time of its pickle that may
cost 50 ms, and no memory.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import aoserial
from benchmarks.measure import MEMORY_BAR, anonymous_bytes, compare, timed
from benchmarks.samples import many_small

GIB = 2
TENSORS = 32
SECONDS_BAR = 0.05


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _subclasses(Path(folder))
        _large(Path(folder) / "large.pt")


def _subclasses(folder: Path) -> None:
    ours = {count: folder / f"ours_{count}.pt" for count in (4_000, 40_000)}
    for count, path in ours.items():
        aoserial.save(many_small(count), path, durability="rename")
    files = {"ours": ours[4_000], "torchao's": _torchao(folder / "torchao.pt")}
    for whose, path in files.items():
        if path is not None:
            compare(
                f"load 4,000 of {whose} from .pt, torch.load / ours",
                lambda path=path: aoserial.load(path),  # type: ignore[misc]
                lambda path=path: torch.load(path, weights_only=True),  # type: ignore[misc]
                at_least_faster=3,
            )
    growth = statistics.median(
        timed(lambda: aoserial.load(ours[40_000])) / timed(lambda: aoserial.load(ours[4_000]))
        for _ in range(5)
    )
    verdict = "meets" if growth <= 13 else "MISSES"
    print(f"{'growth from 4,000 to 40,000':<58} {growth:6.2f} ×  bar ≤ 13 ×  {verdict}", flush=True)


def _torchao(path: Path) -> Path | None:
    """4,000 of torchao's own tensors, saved by torch; None where torchao is not installed."""
    try:
        from torchao.quantization import Float8Tensor
    except ImportError:
        print("torchao is NOT installed: its own files are not measured")
        return None
    codes, scale = torch.randn(32, 32).to(torch.float8_e4m3fn), torch.rand(32, 1)
    state = {
        f"model.layers.{i // 1000}.mlp.experts.{i % 1000}.up_proj.weight": Float8Tensor(
            codes.clone(), scale.clone(), block_size=[1, 32], dtype=torch.bfloat16
        )
        for i in range(4_000)
    }
    torch.save(state, path)
    return path


def _large(path: Path) -> None:
    size = (GIB << 30) // TENSORS
    torch.save({f"w.{n}": torch.zeros(size, dtype=torch.uint8) for n in range(TENSORS)}, path)
    spent, extra = map(
        float,
        subprocess.run(
            [sys.executable, "-m", "benchmarks.load_pickles", str(path)],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.split(),
    )
    for what, found, bar, unit in (
        (f"open a plain .pt of {GIB} GiB", spent * 1000, SECONDS_BAR * 1000, "ms"),
        ("  extra anonymous memory", extra / 2**20, MEMORY_BAR / 2**20, "MiB"),
    ):
        verdict = "meets" if found <= bar else "MISSES"
        print(f"{what:<58} {found:6.1f} {unit}  bar ≤ {bar:g} {unit}  {verdict}", flush=True)


def opening(path: str) -> None:
    """Prints the seconds that loading a file takes, and the memory that it adds."""
    import aoserial.checkpoint.loading  # what an import costs is not what loading costs

    torch.ones(1).sum()
    before = anonymous_bytes()
    spent = []
    for _ in range(7):
        start = time.perf_counter()
        state = aoserial.load(path)
        spent.append(time.perf_counter() - start)
    print(statistics.median(spent), anonymous_bytes() - before)
    assert len(state) == TENSORS


if __name__ == "__main__":
    opening(sys.argv[1]) if len(sys.argv) > 1 else main()
