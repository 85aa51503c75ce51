"""Nothing is ever lost: the quick part of the sweep; `make faults` runs the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("sweep.py")
MEMORY = Path("/dev/shm")  # where syncing costs nothing; what is tested does not depend on it


@pytest.fixture(scope="module")
def report():
    command = [sys.executable, str(SWEEP), "--quick"]
    if os.access(MEMORY, os.W_OK):
        command += ["--folder", str(MEMORY)]
    run = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(run.stdout)["scenarios"]


def test_no_fault_at_any_call_leaves_anything_but_the_old_or_the_new(report):
    bad = [
        finding
        for scenario in report.values()
        for tally in scenario["tallies"].values()
        for finding in tally["bad"]
    ]
    assert not bad


def test_faults_were_injected_at_every_call(report):
    for name, scenario in report.items():
        killed = scenario["tallies"]["SIGKILL"]
        assert killed["injected"] == scenario["calls"] >= 10, name
        assert scenario["tallies"]["EIO"]["injected"] >= scenario["calls"] // 4, name


def test_files_that_a_killed_process_left_were_there_to_be_removed(report):
    assert report["save over a file"]["tallies"]["SIGKILL"]["left"] > 5
    assert not report["save over a file"]["tallies"]["EIO"]["left"]


def test_power_failures_left_both_states(report):
    for name in ("save over a file", "migrate in place, header only"):
        ends = report[name]["tallies"]["power failure"]["ends"]
        assert set(ends) == {"killed, old", "killed, new", "done, new"}, name
        assert ends["killed, old"] > 20, name
