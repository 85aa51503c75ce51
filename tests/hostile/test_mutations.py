"""A slice of the fuzzing, small enough for every day; `make fuzz` runs a hundred times as much."""

from __future__ import annotations

import io
import os
import pickle
import random
import subprocess
import sys
from pathlib import Path

import pytest
from support import mutations

from aoserial.errors import AoserialError
from aoserial.storage.pickle import Key, Limits, children
from aoserial.storage.pickle.interpreter import interpret_all
from aoserial.storage.pickle.legacy import no_reference
from aoserial.storage.pickle.recognise import Recogniser

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent


@pytest.mark.parametrize("seed", [1, 2])
def test_broken_streams_and_files_are_refused_or_inert(seed):
    result = subprocess.run(
        [sys.executable, "-W", "error", str(HERE / "fuzz.py"), "3000", "500", str(seed)],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'tests'}"},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    assert "stream accepted" in result.stdout
    assert "stream PickleError" in result.stdout
    assert "file ContainerError" in result.stdout


def test_the_same_seed_makes_the_same_streams():
    code = (
        "import hashlib; from support import mutations\n"
        "print(hashlib.sha256(b''.join(mutations.streams(200, 7))).hexdigest())"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": salt},
        ).stdout
        for salt in ("0", "1")
    }
    assert len(runs) == 1


class Plain(pickle._Unpickler):
    """CPython's own unpickler, in Python, that imports nothing."""

    def find_class(self, module: str, name: str) -> object:
        raise pickle.UnpicklingError(f"{module}.{name}")

    def persistent_load(self, pid: object) -> object:
        raise pickle.UnpicklingError("persistent id")


def test_whatever_both_read_python_reads_the_same():
    """A broken stream that means one thing to us and another to pickle would be a way around us."""
    values = [
        {"a": [1, (2.5, None)], b"k": "x" * 300, 3: {1, 2}},
        [True, [b"\xff"], -(2**40)],
        ("é", {}),
    ]
    good = [pickle.dumps(value, protocol) for value in values for protocol in (1, 2, 4, 5)]
    chance = random.Random(5)
    both = 0
    for _ in range(6000):
        data = mutations.mutated(good, chance)
        try:
            ours = interpret_all(data, Recogniser(no_reference, Limits())).root
        except AoserialError:
            continue
        try:
            theirs = Plain(io.BytesIO(data)).load()
        except Exception:
            continue
        if not any(isinstance(value, Key) for value in walk(ours)):
            assert repr(ours) == repr(theirs), data
            both += 1
    assert both > 100


def walk(root: object) -> list[object]:
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            waiting.extend(children(value))
    return list(seen.values())
