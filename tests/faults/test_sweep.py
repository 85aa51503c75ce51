"""Nothing is ever lost: the quick part of the sweep; `make faults` runs the whole of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SWEEP = Path(__file__).with_name("sweep.py")
RESUMED = "migrate a set to another folder, and go on with it"
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


def test_faults_were_injected_at_every_call_or_at_some_of_very_many(report):
    for name, scenario in report.items():
        calls, tallies = scenario["calls"], scenario["tallies"]
        assert tallies["SIGKILL"]["injected"] == (
            calls if calls < 24 else tallies["SIGKILL"]["runs"]
        )
        assert tallies["SIGKILL"]["injected"] >= min(calls, 18) >= 10, name
        assert tallies["EIO"]["injected"] >= min(calls, 20) // 4, name


def test_a_set_that_was_interrupted_anywhere_comes_out_as_if_it_had_not_been(report):
    for name in ("save a set of shards over another", RESUMED):
        for tally in report[name]["tallies"].values():
            assert tally["again"] == tally["runs"] > 0
    ends = report[RESUMED]["tallies"]["SIGKILL"]["ends"]
    assert ends["killed, old"] > 10
    assert ends["killed, new"] > 0


def test_files_that_a_killed_process_left_were_there_to_be_removed(report):
    assert report["save over a file"]["tallies"]["SIGKILL"]["left"] > 5
    assert not report["save over a file"]["tallies"]["EIO"]["left"]


def test_power_failures_left_both_states(report):
    for name in ("save over a file", "migrate in place, header only"):
        ends = report[name]["tallies"]["power failure"]["ends"]
        assert set(ends) == {"killed, old", "killed, new", "done, new"}, name
        assert ends["killed, old"] > 20, name
