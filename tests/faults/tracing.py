"""The same by `strace`: real system calls fail, or kill the process that makes them.

A process is forked, stops itself, is attached to, and goes on; so only the scenario's own calls are
counted, and none of Python's start.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from faults.running import Child, Ended, Stage, Tally, until

from aoserial.errors import AoserialError

# those that write, and those that what is written hangs on
CALLS = (
    "openat", "pwrite64", "copy_file_range", "fallocate", "fchmod", "fsync", "fdatasync", "rename",
    "unlink", "close", "dup", "flock",
)  # fmt: skip

KINDS = {"SIGKILL": "signal=KILL", "EIO": "error=EIO", "ENOSPC": "error=ENOSPC"}

_MOST = 400  # calls of one kind; no scenario makes so many


@functools.cache
def works() -> bool:
    """Whether strace is there, and this process may trace another."""
    if shutil.which("strace") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        ended = _traced(lambda: Ended("done"), "getppid", "error=EIO", 1, log)
        return ended is not None


def sweep(stage: Stage) -> dict[str, Tally]:
    """Every fault at the first, second, … call of each kind, until there is none left to hit."""
    tallies = {}
    for kind, fault in KINDS.items():
        tally = tallies[f"{kind} by strace"] = Tally()
        for call in CALLS:
            for when in range(1, _MOST):
                one = _run(stage, call, fault, when, f"{kind} by strace at {call} {when}")
                tally.add(one)
                if not one.injected:
                    break
            else:
                tally.bad.append(f"{stage.scenario.name}: {call} is called without end")
    return tallies


def _run(stage: Stage, call: str, fault: str, when: int, what: str) -> Tally:
    folder = stage.fresh()
    log = folder.parent / "strace.log"
    log.unlink(missing_ok=True)

    def act() -> Ended:
        try:
            stage.scenario.act(folder)
        except AoserialError as error:
            return Ended("refused", getattr(error, "state", ""), str(error))
        except Exception as error:  # that is the finding
            return Ended("raised", error=f"{type(error).__name__}: {error}")
        return Ended("done")

    ended = _traced(act, call, fault, when, log) or Ended("killed")
    hit = ended.how == "killed" or "(INJECTED)" in log.read_text()
    tally = stage.check(folder, replace(ended, hits=(call,) if hit else ()), what)
    shutil.rmtree(folder)
    return tally


def _traced(act: Callable[[], Ended], call: str, fault: str, when: int, log: Path) -> Ended | None:
    child = Child(act, stopped=True)
    expressions = (f"trace={call}", "signal=none", f"inject={call}:{fault}:when={when}")
    told = [word for expression in expressions for word in ("-e", expression)]
    command = ["strace", "-f", "-qq", "-o", str(log), *told, "-p", str(child.pid)]
    status = Path(f"/proc/{child.pid}/status")
    with subprocess.Popen(command, stderr=subprocess.PIPE) as tracer:
        traced = until(
            10,
            lambda: (
                not re.search(r"TracerPid:\s+0\n", status.read_text()) or tracer.poll() is not None
            ),
        )
        traced = traced and tracer.poll() is None
        os.kill(child.pid, signal.SIGCONT if traced else signal.SIGKILL)
        ended: Ended | None = child.result()
        tracer.communicate(timeout=20)
    return ended
