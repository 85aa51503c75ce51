"""Writers and readers of one file, at the same time; prints as JSON what they saw.

python tests/faults/together.py FOLDER SECONDS
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import torch
from faults.running import Child, Stage, in_child, temps_in
from faults.scenarios import SCENARIOS, declare, plain

import aoserial
from aoserial.errors import AoserialError
from aoserial.storage import AtomicFile

NAME = "model.safetensors"


def in_small_pieces() -> None:
    """Has every write reach the file a few hundred bytes at a time."""
    original = os.pwrite
    os.pwrite = lambda descriptor, data, at: original(descriptor, data[:300], at)


def repeat(seconds: float, act: Callable[[int], Any]) -> Counter[str]:
    """What `act` gave, again and again for so long."""
    end, seen, number = time.monotonic() + seconds, Counter[str](), 0
    while time.monotonic() < end:
        try:
            seen[str(act(number))] += 1
        except AoserialError as error:
            seen[f"{type(error).__name__}: {error.message}"] += 1
        number += 1
    return seen


def together(*acts: Callable[[], Any]) -> list[Any]:
    """The results of several processes that run at the same time."""
    children = [Child(act) for act in acts]
    return [child.result() for child in children]


def reader_beside_migrator(stage: Stage, seconds: float) -> dict[str, Any]:
    folder = stage.fresh()
    path = folder / NAME
    first = path.read_bytes()

    def migrate(_: int) -> str:
        aoserial.migrate(path, in_place=True)
        with AtomicFile(path, durability="rename") as file:
            file.write(first)
        return "migrated"

    def write() -> Counter[str]:
        in_small_pieces()
        return repeat(seconds, migrate)

    def read() -> Counter[str]:
        def look(_: int) -> str:
            with aoserial.open(path) as checkpoint:
                records = checkpoint.records()
                versions = {record.version for record in records.values()}
                names = {name for record in records.values() for name in record.parts}
                sums = [
                    float(part.read().sum())
                    for record in records.values()
                    for part in record.parts.values()
                ]
            return f"{versions} {sorted(names)} {sum(sums)}"

        return repeat(seconds, look)

    written, *seen = together(write, read, read)
    return {"written": written, "read": seen[0] + seen[1], "left": len(temps_in(folder))}


def two_writers(root: Path, seconds: float) -> dict[str, Any]:
    path = root / "writers" / NAME
    path.parent.mkdir()
    aoserial.save(plain(0), path)

    def writer(value: int) -> Callable[[], Counter[str]]:
        def write() -> Counter[str]:
            return repeat(seconds, lambda _: aoserial.save(plain(value), path))

        return write

    def read() -> Counter[str]:
        def look(_: int) -> str:
            state = aoserial.load(path, verify="checksums")
            return str(
                {int(value) for tensor in state.values() for value in tensor.unique().tolist()}
            )

        return repeat(seconds, look)

    one, other, seen = together(writer(1), writer(2), read)
    return {"written": one + other, "read": seen, "left": len(temps_in(path.parent))}


def main() -> None:
    torch.set_num_threads(1)
    root, seconds = Path(sys.argv[1]), float(sys.argv[2])
    (scenario,) = (one for one in SCENARIOS if one.name == "migrate in place, header only")
    stage = Stage(scenario, root / "stage")
    in_child(stage.prepare)
    declare(2)
    stage.measure()
    report = {
        "reader beside migrator": reader_beside_migrator(stage, seconds),
        "two writers": two_writers(root, seconds),
    }
    shutil.rmtree(root / "stage")
    print(json.dumps(report))


if __name__ == "__main__":
    main()
