"""Several programs at one file: each of them finds it whole."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("together.py")
SECONDS = "1"


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("together")
    command = [sys.executable, str(PROGRAM), str(folder), SECONDS]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)


def test_a_reader_beside_a_migration_in_place_sees_the_old_file_or_the_new_one(report):
    found = report["reader beside migrator"]
    sums = 3 * 1600 * 2.0 + 3 * 40 * 4.0
    assert set(found["read"]) <= {
        f"{{1}} ['qdata', 'scale'] {sums}",
        f"{{2}} ['codes', 'scale'] {sums}",
    }
    assert sum(found["read"].values()) > 5
    assert found["written"]["migrated"] > 2
    assert not found["left"]


def test_of_two_writers_each_file_is_one_writers(report):
    found = report["two writers"]
    assert set(found["read"]) <= {"{0}", "{1}", "{2}"}
    assert sum(found["read"].values()) > 5
    assert set(found["written"]) == {"None"}
    assert found["written"]["None"] > 2
    assert not found["left"]
