"""What a small file can cost: time and memory are measured in a process of its own for each."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support import bombs, containers

ROOT = Path(__file__).parents[2]

# The bound on memory that Limits promises: this much, and so many times the pickle
FREE_KILOBYTES = 64 * 1024
PER_BYTE = 20

# Of processor time, several times what a slow machine takes
SECONDS = 20


def measured(path: Path) -> dict:
    result = subprocess.run(
        [sys.executable, __file__.replace("test_resources", "run_bomb"), str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads(result.stdout)


# `make fuzz` runs them all
NAMES = [name for name in bombs.BOMBS if "AOSERIAL_FUZZ" in os.environ or name not in bombs.SLOW]


@pytest.mark.parametrize("name", NAMES)
def test_a_bomb_costs_little(tmp_path, name):
    stream = bombs.built(name)
    path = tmp_path / "x.pt"
    path.write_bytes(containers.zipped(stream))
    limit = bombs.BOMBS[name][1]
    cost = measured(path)
    assert cost["outcome"] == {None: "loads", "": "PickleError"}.get(limit, limit) or (
        limit == "" and cost["outcome"] == "TruncatedError"
    )
    assert cost["seconds"] < SECONDS
    assert cost["kilobytes"] < FREE_KILOBYTES + PER_BYTE * len(stream) / 1024
