"""How far work is: bars on a terminal, lines in a log, nothing for what is over at once."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys

import pytest
import torch

import aoserial
from aoserial.cli import progress
from aoserial.cli.app import run
from aoserial.cli.progress import Lines

GIB = 2**30


@pytest.fixture
def folder(tmp_path):
    """A set of three shards."""
    state = {f"l{n}.weight": torch.full((512, 640), float(n)) for n in range(3)}
    aoserial.save(state, tmp_path / "set", max_shard_size=1_500_000)
    return tmp_path / "set"


def lines_told(*steps):
    """What is said of steps (seconds, bytes done, bytes of the shard done): 1 GiB/s, 8 GiB."""
    clock, said = [0.0], []
    lines = Lines("migrating", say=said.append, clock=lambda: clock[0])
    for clock[0], done, of_shard in steps:
        if of_shard is not None:
            lines.shard("model-00002-of-00009.safetensors", of_shard, 2 * GIB)
        lines(done, 100 * GIB)
    return said


def test_work_of_some_seconds_says_nothing_in_a_log():
    assert lines_told((0.1, 0, None), (4.9, 99 * GIB, None), (5.5, 100 * GIB, None)) == []


def test_longer_work_says_now_and_then_how_far_and_how_fast_it_is():
    steps = [(second, second * GIB, None) for second in range(1, 50)]
    assert lines_told(*steps) == [
        "migrating: 5.0 GiB of 100.0 GiB, 1.0 GiB/s, 1:35 left",
        "migrating: 35.0 GiB of 100.0 GiB, 1.0 GiB/s, 1:05 left",
    ]


def test_a_line_tells_of_the_shard_in_progress_as_well():
    (line,) = lines_told((1, 10 * GIB, 0), (6, 12 * GIB, GIB))
    whole, _, shard = line.partition("; ")
    assert whole == "migrating: 12.0 GiB of 100.0 GiB, 409.6 MiB/s, 3:40 left"
    assert shard == "model-00002-of-00009.safetensors: 1.0 GiB of 2.0 GiB, 204.8 MiB/s, 0:05 left"


def test_what_was_finished_before_does_not_count_as_speed():
    (line,) = lines_told((1, 50 * GIB, None), (11, 60 * GIB, None))
    assert line == "migrating: 60.0 GiB of 100.0 GiB, 1.0 GiB/s, 0:40 left"


COMMANDS = {
    "migrating": ["migrate", "{set}", "{new}/"],
    "converting": ["convert", "{set}", "{new}/", "--to", "plain"],
    "verifying": ["verify", "--deep", "{set}"],
}

PROGRAM = """
import sys
from aoserial.cli import progress
from aoserial.cli.app import run
progress.BARS_AFTER_S = progress.FIRST_LINE_AFTER_S = progress.LINE_EVERY_S = 0
sys.exit(run(sys.argv[1:]))
"""


def arguments(verb, folder, tmp_path):
    return [word.format(set=folder, new=tmp_path / "new") for word in COMMANDS[verb]]


@pytest.mark.parametrize("verb", ["converting", "verifying"])
def test_a_terminal_shows_a_bar_for_all_and_one_for_the_shard(verb, folder, tmp_path):
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments(verb, folder, tmp_path)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "120"},
    ) as child:
        os.close(theirs)
        shown = b""
        while piece := _read(ours):
            shown += piece
    os.close(ours)
    assert child.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.decode())
    rows = [line.strip() for line in re.split(r"[\r\n]+", text)]
    (whole,) = {row.split()[0] for row in rows if row.startswith(verb)}
    assert whole == verb
    assert any(row.startswith("model-00003-of-00003.safetensors") for row in rows)
    assert all("/s" in row or "?" in row for row in rows if row.startswith(("model-", verb)))
    assert shown.rfind(b"\x1b[?25h") > shown.rfind(b"\x1b[?25l") >= 0  # the cursor is back


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # nobody has the other end open any more
        return b""


@pytest.mark.parametrize("verb", COMMANDS)
def test_elsewhere_there_are_plain_lines_and_no_control_characters(
    verb, folder, tmp_path, capfd, monkeypatch
):
    for when in ("FIRST_LINE_AFTER_S", "LINE_EVERY_S"):
        monkeypatch.setattr(progress, when, 0)
    assert run(arguments(verb, folder, tmp_path)) == 0
    told = capfd.readouterr().err
    lines = told.splitlines()
    assert lines
    assert all(line.startswith(f"aoserial: {verb}: ") for line in lines)
    assert all(" of " in line for line in lines)
    assert any("model-00002-of-00003.safetensors: " in line for line in lines)
    assert told.replace("\n", "").isprintable()


@pytest.mark.parametrize("verb", COMMANDS)
def test_what_is_over_at_once_says_nothing_of_it(verb, folder, tmp_path, capfd):
    assert run(arguments(verb, folder, tmp_path)) == 0
    assert capfd.readouterr().err == ""


def test_names_of_shards_are_escaped(capfd, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_LINE_AFTER_S", 0)
    with progress.watching("verifying") as watcher:
        watcher.shard("\x1b[31mred", 1, 2)
        watcher(1, 2)
    told = capfd.readouterr().err
    assert "red" in told
    assert "\x1b" not in told


INTERRUPTED = """
import signal, sys, time
# a shell has what it starts in the background ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)
from aoserial.cli.app import run
from aoserial.storage.safetensors.streaming import Stream
from aoserial.storage.pickle import writer

def wait(*_):
    print("writing", flush=True)
    time.sleep(60)

Stream._wrote = wait
writer._Buffered._put = wait
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(
    ("command", "name"), [("migrate", "new.safetensors"), ("convert", "new.pt")]
)
def test_an_interrupted_file_leaves_nothing(command, name, tmp_path):
    old = tmp_path / "old.safetensors"
    aoserial.save({"w": torch.ones(8)}, old)
    (tmp_path / "new").mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, command, str(old), str(tmp_path / "new" / name)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "writing\n"
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=300)
    assert child.returncode == 130
    assert told.strip() == "aoserial: interrupted; nothing was left half written"
    assert os.listdir(tmp_path / "new") == []
