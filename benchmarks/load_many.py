"""How long does it take to load 40,000 quantized tensors into a plain dict?

Against `safetensors.torch.load_file` of the same file, which gives the 80,000 parts and no
quantized tensor, mapped as it does by default and through its `pread` backend.
"""

from __future__ import annotations

import statistics
import tempfile
from functools import partial
from pathlib import Path

from safetensors.torch import load_file

import aoserial
from benchmarks.measure import compare, timed
from benchmarks.samples import many_small


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        paths = {}
        for count in (10_000, 40_000):
            paths[count] = Path(folder) / f"{count}.safetensors"
            aoserial.save(many_small(count), paths[count], durability="rename")
        large, small = paths[40_000], paths[10_000]
        compare(
            "load 40,000 tensors / load_file",
            lambda: aoserial.load(large),
            lambda: load_file(large),
            at_most=0.8,
            runs=5,
        )
        compare(
            "load 40,000 tensors / load_file(backend='pread')",
            lambda: aoserial.load(large),
            lambda: load_file(large, backend="pread"),
            at_most=1.0,
            runs=5,
        )
        _growth(small, large)


def _growth(small: Path, large: Path, runs: int = 5) -> None:
    """Time at 40,000 over time at 10,000, ours over the peer's."""
    growths = {}
    for name, load in (("ours", aoserial.load), ("peer", load_file)):
        load(small)
        growths[name] = statistics.median(
            timed(partial(load, large)) / timed(partial(load, small)) for _ in range(runs)
        )
    ratio = growths["ours"] / growths["peer"]
    verdict = "meets" if ratio <= 1.35 else "MISSES"
    print(
        f"{'growth of that from 10,000':<58} ours {growths['ours']:7.2f} ×   "
        f"peer {growths['peer']:7.2f} ×   ratio {ratio:6.3f}  bar ≤ 1.35   {verdict}"
    )


if __name__ == "__main__":
    main()
