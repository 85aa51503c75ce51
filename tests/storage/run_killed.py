"""Replaces a set again and again, in children that die at one system call each.

Prints what the folder held after each, as JSON: `old`, `new`; anything else is an error.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from aoserial.storage import TensorPart
from aoserial.storage.shards import Target, write_set
from aoserial.storage.shards.index import parse_index

CALLS = ("open", "pwrite", "fsync", "fdatasync", "fchmod", "rename", "unlink", "close")
DIED = 9


def write(folder: Path, value: int) -> None:
    parts = [({f"k{n}": TensorPart(torch.full((8,), value))}, {}) for n in range(3)]
    target = Target(folder=str(folder), stem="model", limit=None)
    write_set(target, parts, writer="test", metadata={})


def read(folder: Path) -> int:
    index = parse_index((folder / "model.safetensors.index.json").read_bytes())
    values = {load_file(folder / name)[key][0].item() for key, name in index.weight_map.items()}
    (value,) = values
    return int(value)


def dying(when: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    calls = 0

    def wrap(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == when:
                os._exit(DIED)
            return original(*args, **options)

        return call

    return wrap


def main(root: Path) -> None:
    old = root / "old"
    write(old, 1)
    outcomes = []
    for when in range(1, 1000):
        folder = root / "set"
        shutil.copytree(old, folder)
        child = os.fork()
        if not child:
            wrap = dying(when)
            for name in CALLS:
                setattr(os, name, wrap(getattr(os, name)))
            write(folder, 2)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        outcomes.append({1: "old", 2: "new"}[read(folder)])
        write(folder, 3)  # what a dead one left must not be in the way of the next
        assert read(folder) == 3
        assert len([name for name in os.listdir(folder) if not name.startswith(".")]) == 4
        shutil.rmtree(folder)
        if os.waitstatus_to_exitcode(status) == 0:
            break
        assert os.waitstatus_to_exitcode(status) == DIED
    print(json.dumps(outcomes))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
