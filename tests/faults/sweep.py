"""Interrupts every scenario at every call, and prints what that left as JSON.

    python tests/faults/sweep.py [--quick] [--folder DIR]

One process imports everything and forks one for each run that ends its process, which costs
milliseconds instead of the seconds that importing torch takes.
"""

from __future__ import annotations

import argparse
import gc
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from faults import full, power, tracing
from faults.running import Stage, Tally, in_child
from faults.scenarios import SCENARIOS, declare
from faults.seam import Fault

from aoserial.storage.safetensors import streaming

BLOCK_BYTES = 1 << 16  # more than any file here has; the fewer zeros a process has to make
QUICK_STEP = 4  # of the faults that are errors, the quick sweep injects every fourth
QUICK_KILLS = 24  # about; where there are more calls, the quick sweep kills at some of them
QUICK = (
    "save over a file",
    "save over the file the tensors are mapped from",
    "save a .pt",
    "migrate to another file",
    "migrate in place, header only",
    "read a file whose header was half written",
    "save a set of shards over another",
    "migrate a set to another folder, and go on with it",
)
QUICK_POWER = ("save over a file", "migrate in place, header only")


def faults(calls: int, *, quick: bool) -> Iterator[tuple[str, Fault]]:
    """Every fault at every call; the call after the last one is there to miss."""
    sparse = 1 + calls // QUICK_KILLS if quick else 1
    step = QUICK_STEP * sparse if quick else 1
    for when in range(1, calls + 2, sparse):
        yield "SIGKILL", Fault("kill", when)
    for when in range(1, calls + 2, step):
        yield "EIO", Fault("EIO", when)
    for when in range(2, calls + 2, step):
        yield "ENOSPC from there on", Fault("ENOSPC", when, lasting=True)
    yield "short writes from there on", Fault("short", 1, lasting=True)
    if quick:
        return
    for when in range(1, calls + 2):
        yield "ENOSPC", Fault("ENOSPC", when)
        yield "EIO from there on", Fault("EIO", when, lasting=True)
        yield "KeyboardInterrupt", Fault("interrupt", when)


def sweep(stage: Stage, *, quick: bool) -> dict[str, Tally]:
    tallies: dict[str, Tally] = {}
    for kind, fault in faults(len(stage.log), quick=quick):
        folder = stage.fresh()
        ended = stage.run(folder, fault)
        tally = stage.check(folder, ended, f"{kind} at call {fault.when}")
        tallies.setdefault(kind, Tally()).add(tally)
        shutil.rmtree(folder)
    return tallies


def real_faults(stage: Stage, disk: Path) -> dict[str, Tally]:
    """Those that the system makes, as far as this process may have them made."""
    tallies = tracing.sweep(stage) if tracing.works() else {}
    filled = full.sweep(stage, disk)
    if filled is not None:
        tallies["full disk"] = filled
        disk.rmdir()
    return tallies


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a forked process has none of the threads that a pool would count on
    streaming.BLOCK_BYTES = BLOCK_BYTES
    began = time.monotonic()
    root = Path(tempfile.mkdtemp(dir=options.folder))
    try:
        chosen = [
            one
            for one in SCENARIOS
            if options.only in one.name and (not options.quick or one.name in QUICK)
        ]
        stages = [Stage(one, root / str(number)) for number, one in enumerate(chosen)]
        in_child(lambda: [stage.prepare() for stage in stages])
        declare(2)
        gc.freeze()  # what forked processes do not collect they do not copy
        report = {}
        for stage in stages:
            stage.measure()
            tallies = sweep(stage, quick=options.quick)
            if not options.quick or stage.scenario.name in QUICK_POWER:
                tallies["power failure"] = power.sweep(stage, root / "power")
            if not options.quick:
                tallies |= real_faults(stage, root / "disk")
            print(f"{stage.scenario.name}: {time.monotonic() - began:.0f} s", file=sys.stderr)
            report[stage.scenario.name] = {
                "calls": len(stage.log),
                "tallies": {kind: vars(tally) for kind, tally in tallies.items()},
            }
    finally:
        shutil.rmtree(root)
    print(json.dumps({"seconds": time.monotonic() - began, "scenarios": report}))


if __name__ == "__main__":
    main()
