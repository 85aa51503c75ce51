"""How long does it take to load a set of 8 shards of 512 MiB and read every byte once?

Against `safetensors.torch.load_file` of each shard, warm. Then: does the time for 100,000 tensors
grow in line with their number, and do headers stay under the 25 MB that hubs read? And what does
saving such a set cost, whose SHA-256 needs every file to be read once more from memory?
"""

from __future__ import annotations

import os
import shutil
import statistics
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

import aoserial
from aoserial.storage.safetensors import SafetensorsFile
from benchmarks.load_large import read_all
from benchmarks.measure import compare, timed
from benchmarks.samples import few_large, many_small

GIB = 4
SHARD_BYTES = 512 << 20
HEADER_BAR = 25_000_000
GROWTH_BAR = 1.35


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        _large(Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        _many(Path(folder))


def _large(folder: Path) -> None:
    state = few_large(GIB)
    shards = folder / "set"
    # weights of 64 MiB have scales, too: seven fit into 512 MiB, eight with a little more
    size = SHARD_BYTES + (1 << 20)
    aoserial.save(state, shards, max_shard_size=size, durability="rename")

    def theirs() -> int:
        loaded: dict[str, torch.Tensor] = {}
        for path in sorted(shards.glob("*.safetensors")):
            loaded |= load_file(path)
        return read_all(loaded)

    compare(
        f"load {GIB} GiB in {len(list(shards.glob('*.safetensors')))} shards, read every byte",
        lambda: read_all(aoserial.load(shards)),
        theirs,
        at_most=1.1,
        runs=3,
    )
    shutil.rmtree(shards)
    plain, metadata = aoserial.flatten(state)

    def ours_saved() -> None:
        shutil.rmtree(shards, ignore_errors=True)
        aoserial.save(state, shards, max_shard_size=size)

    def theirs_saved() -> None:
        shutil.rmtree(shards, ignore_errors=True)
        shards.mkdir()
        keys = list(plain)
        for number in range(8):
            part = {key: plain[key] for key in keys[number * 16 : number * 16 + 16]}
            path = shards / f"{number}.safetensors"
            save_file(part, path, metadata=metadata)
            descriptor = os.open(path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)

    compare(
        f"save {GIB} GiB in shards: CRC-32, SHA-256, fsync / save_file + fsync",
        ours_saved,
        theirs_saved,
        at_most=2.0,
        runs=3,
    )


def _many(folder: Path) -> None:
    seconds = {}
    for count in (10_000, 100_000):
        shards = folder / str(count)
        aoserial.save(many_small(count), shards, max_shard_size=count * 128, durability="rename")
        aoserial.load(shards)
        seconds[count] = statistics.median(
            timed(lambda at=shards: aoserial.load(at)) for _ in range(5)
        )
    growth = seconds[100_000] / seconds[10_000] / 10
    verdict = "meets" if growth <= GROWTH_BAR else "MISSES"
    print(
        f"{'load 100,000 tensors in 9 shards, growth from 10,000':<58} "
        f"{seconds[100_000]:.3f} s / {seconds[10_000]:.3f} s / 10 = {growth:.2f}  "
        f"bar ≤ {GROWTH_BAR}  {verdict}"
    )
    headers = [len(SafetensorsFile.open(path).header.raw) for path in shards.glob("*.safetensors")]
    verdict = "meets" if max(headers) <= HEADER_BAR else "MISSES"
    print(f"{'  largest header':<58} {max(headers) / 1e6:6.1f} MB  bar ≤ 25 MB  {verdict}")


if __name__ == "__main__":
    main()
