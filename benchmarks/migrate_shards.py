"""How fast is a set of 8 shards of 512 MiB migrated, in how much memory, and gone on with?

Sets of torchao's int4 and int8, streamed to ours, against copying the files through Python with
fsync; a set of ours, of which nothing but bytes with checksums is left to copy. Then a migration is
killed when half of the shards are finished, and gone on with: the rest is made, the finished half
is read once.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

import aoserial
from benchmarks.measure import compare
from benchmarks.migrate_stream import copy, int4, int8, peak

SHARDS = 8
_WEIGHTS = 8  # of 64 MiB in a shard
_SHARD_BYTES = (_WEIGHTS << 26) + (16 << 20)  # with the scales, and less than one weight more
_MEMORY_BAR = (2 << 26) + (64 << 20)
_KINDS = {"torchao's int4": int4, "torchao's int8": int8, "our int8": int8}


def main() -> None:
    for kind, make in _KINDS.items():
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder, "old"), Path(folder, "new")
            _write(old, make(), torchao=kind.startswith("torchao"))
            count = len(list(old.glob("*.safetensors")))
            question = f"migrate {count} shards of 512 MiB, {kind} / copying them"

            def ours(old: Path = old, new: Path = new) -> None:
                shutil.rmtree(new, ignore_errors=True)
                aoserial.migrate(old, f"{new}/")

            def theirs(old: Path = old, new: Path = new) -> None:
                shutil.rmtree(new, ignore_errors=True)
                new.mkdir()
                for path in sorted(old.iterdir()):
                    copy(path, new / path.name)

            compare(question, ours, theirs, at_most=2, runs=3)
            shutil.rmtree(new)
            if kind == "torchao's int4":
                _go_on(old, new)


def _write(folder: Path, weight: torch.Tensor, *, torchao: bool) -> None:
    state = {f"layers.{number}.weight": weight.clone() for number in range(SHARDS * _WEIGHTS)}
    layout = "torchao" if torchao else "aoserial"
    aoserial.save(state, folder, max_shard_size=_SHARD_BYTES, layout=layout, durability="rename")


def _go_on(old: Path, new: Path) -> None:
    """Prints what it takes to go on, and the memory of that, in processes of their own."""
    whole, _ = _measured(old, new)
    shutil.rmtree(new)
    with subprocess.Popen([*_COMMAND, "begin", str(old), str(new)]) as child:
        while _finished(new) < SHARDS // 2:
            assert child.poll() is None, "it ended before it was killed"
            time.sleep(0.01)
        child.send_signal(signal.SIGKILL)
    seconds, extra = _measured(old, new)
    assert aoserial.plan(new).pending == ()
    verdict = "meets" if seconds <= whole else "MISSES"
    print(
        f"{'  … killed with half of the shards finished, gone on with':<58} {seconds:.1f} s, "
        f"{whole:.1f} s for all: {seconds / whole:.2f}  bar ≤ 1  {verdict}"
    )
    verdict = "meets" if extra <= _MEMORY_BAR else "MISSES"
    label = "  … peak anonymous memory beside what was there"
    print(f"{label:<58} {extra / 2**20:6.1f} MiB  bar ≤ {_MEMORY_BAR >> 20} MiB  {verdict}")


def _measured(old: Path, new: Path) -> tuple[float, float]:
    """Seconds and bytes of memory that it takes to go on, be it from nothing."""
    command = [*_COMMAND, "go on", str(old), str(new)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds, extra = map(float, done.stdout.split())
    return seconds, extra


def _finished(new: Path) -> int:
    try:
        return len(json.loads((new / ".aoserial-model.resume.json").read_text())["finished"])
    except FileNotFoundError:
        return 0


def run(what: str, old: str, new: str) -> None:
    """Migrates; for `go on`, prints seconds and bytes of memory, what is loaded once aside."""
    if what == "begin":
        aoserial.migrate(old, f"{new}/")
        return
    with tempfile.TemporaryDirectory() as folder:
        aoserial.save({"warm": int8()[:8].clone()}, Path(folder, "warm.safetensors"))
    began = time.perf_counter()
    extra = peak(lambda: aoserial.migrate(old, f"{new}/", resume=True))
    print(time.perf_counter() - began, extra)


_COMMAND = [sys.executable, "-m", "benchmarks.migrate_shards"]

if __name__ == "__main__":
    run(*sys.argv[1:]) if len(sys.argv) > 1 else main()
