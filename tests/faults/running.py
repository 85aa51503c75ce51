"""Runs of a scenario, each in a process of its own, and what they leave behind."""

from __future__ import annotations

import os
import pickle
import re
import shutil
import signal
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from faults.scenarios import Scenario, plain
from faults.seam import Fault, Seam

import aoserial
from aoserial.errors import AoserialError

_DIGITS = re.compile(rb"(?<=-of-\d{5})-[0-9a-f]{12}")
_NEW = ("renamed, not known durable", "rewritten, journal kept")


@dataclass(frozen=True)
class Ended:
    """How a run ended.

    Attributes:
        how: `done`, `refused` (an error of ours), `killed`, `interrupted`, or `raised`.
        state: what the error said of the disk.
        error: its text.
        hits: the calls that the fault was injected into.
        log: the calls, of a run without fault.
    """

    how: str
    state: str = ""
    error: str = ""
    hits: tuple[str, ...] = ()
    log: tuple[Any, ...] = ()


@dataclass
class Tally:
    """What was counted over many runs.

    Attributes:
        injected: runs in which the fault was injected.
        ends: how runs ended, and with which state of the folder.
        calls: the calls that were hit.
        left: runs that left a temp file behind.
        again: runs after which it was done again, and came out as if it had never been interrupted.
        bad: descriptions of runs that broke a promise.
    """

    runs: int = 0
    injected: int = 0
    ends: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    left: int = 0
    again: int = 0
    bad: list[str] = field(default_factory=list)

    def add(self, other: Tally) -> None:
        self.runs += other.runs
        self.injected += other.injected
        self.ends += other.ends
        self.calls += other.calls
        self.left += other.left
        self.again += other.again
        self.bad += other.bad


def save_into(folders: list[Path]) -> None:
    """A save of something else."""
    for folder in folders:
        aoserial.save(plain(3), folder / "next")
        (folder / "next").unlink()


class Stage:
    """A scenario with both of its states, ready to be run again and again."""

    def __init__(self, scenario: Scenario, root: Path) -> None:
        self.scenario = scenario
        self._root = root
        self._template = root / "template"
        self._number = 0

    def prepare(self) -> None:
        """Makes the old state, for all stages in one process, which declares types as they were."""
        self._template.mkdir(parents=True)
        self.scenario.prepare(self._template)

    def measure(self) -> None:
        """Runs it without fault, for the new state; after `declare(2)`."""
        folder = self.fresh()
        self.scenario.act(folder)  # imports all that it needs
        shutil.rmtree(folder)
        folder = self.fresh()
        self.old = self._look(folder)
        shutil.rmtree(folder)
        folder = self.fresh()
        ended = self.run(folder, None)
        assert ended.how == "done", ended
        self.log, self.measured_in = ended.log, str(folder)
        self.new = self._look(folder)
        self.sources = self._sources(folder)
        self._whole = files_in(folder)
        states = files_in(self._template) | self._whole
        self._modes = {path: mode for path, (_, mode) in states.items()}
        shutil.rmtree(folder)

    def mode_of(self, name: str) -> int:
        """The permission bits of a file in either state; those of a temp file for others."""
        return self._modes.get(name, 0o600) & 0o777

    def fresh(self) -> Path:
        """A folder in the old state."""
        return self.fresh_in(self._root)

    def fresh_in(self, place: Path) -> Path:
        """A folder in the old state, in another folder."""
        self._number += 1
        folder = place / str(self._number)
        shutil.copytree(self._template, folder, symlinks=True)
        return folder

    def run(self, folder: Path, fault: Fault | None) -> Ended:
        """One run; what ends a process has one of its own."""

        def act() -> Ended:
            seam = Seam(fault)
            try:
                with seam.installed():
                    self.scenario.act(folder)
            except AoserialError as error:
                state = getattr(error, "state", "")
                return Ended("refused", state, str(error), tuple(seam.hits))
            except KeyboardInterrupt:
                return Ended("interrupted", hits=tuple(seam.hits))
            except Exception as error:  # that is the finding
                return Ended(
                    "raised", error=f"{type(error).__name__}: {error}", hits=tuple(seam.hits)
                )
            seen = tuple(seam.log) if fault is None else ()
            return Ended("done", hits=tuple(seam.hits), log=seen)

        if fault is None or fault.kind not in ("kill", "interrupt"):
            return act()
        return in_child(act) or Ended("killed", hits=("kill",))

    def check(
        self,
        folder: Path,
        ended: Ended,
        what: str,
        next_save: Callable[[list[Path]], object] = save_into,
    ) -> Tally:
        """Whether what a run left is what was promised.

        Args:
            next_save: saves something into each folder that a temp file was left in.
        """
        tally = Tally(runs=1, injected=bool(ended.hits), calls=Counter(ended.hits[:1]))
        temps = temps_in(folder)
        tally.left = bool(temps)
        left = self._root / "left"
        if self.scenario.again:
            shutil.copytree(folder, left, symlinks=True)

        def bad(finding: str) -> None:
            tally.bad.append(f"{self.scenario.name}, {what}, {ended.how} {ended.error}: {finding}")

        if ended.how == "raised":
            bad("an error that is none of ours")
        if len(temps) > 1 or (temps and ended.how != "killed" and "unlink" not in ended.hits):
            bad(f"left {temps}")
        if temps:  # as the next program would: one save into each folder that has one
            next_save([one.parent for one in temps])
            if temps_in(folder):
                bad("the next save did not remove them")
        if self._sources(folder) != self.sources:
            bad("a source was changed")
        try:
            found = self._look(folder)
        except Exception as error:  # that is the finding
            bad(f"cannot be read: {type(error).__name__}: {error}")
            return tally
        which = "new" if found == self.new else "old" if found == self.old else "a third state"
        tally.ends[f"{ended.how}, {which}"] += 1
        expected = {
            "done": ("new",),
            "refused": ("new",) if ended.state in _NEW else ("old",),
        }.get(ended.how, ("old", "new"))
        if ended.state == "half written, journal kept":
            expected = ("old", "new")
        if self.old != self.new and which not in expected:
            bad(f"{which} with state {ended.state!r}")
        elif which == "a third state":
            bad(which)
        if self.scenario.again:
            tally.again = self._goes_on(left, was_whole=which == "new")
            if not tally.again:
                bad("what was gone on with came out otherwise")
        return tally

    def _goes_on(self, folder: Path, *, was_whole: bool) -> bool:
        """Whether doing it again makes what would have been there without an interruption.

        A set that was whole before, and has no journal, is written over: under other names.
        """
        assert self.scenario.again is not None
        anew = was_whole and not list(folder.rglob(".aoserial-*.json"))
        self.scenario.again(folder)
        found, whole = files_in(folder), self._whole
        shutil.rmtree(folder)
        if anew:
            return _without_digests(found) == _without_digests(whole)
        return bool(found == whole)

    def _look(self, folder: Path) -> Any:
        content = self.scenario.read(folder)
        return content, files_in(folder) if self.scenario.exact else None

    def _sources(self, folder: Path) -> dict[str, Any]:
        kept = self.scenario.sources
        return {name: found for name, found in files_in(folder).items() if name.startswith(kept)}


def files_in(folder: Path) -> dict[str, Any]:
    """All files by path: their bytes, or where a symlink leads, and their mode."""
    return {
        str(path.relative_to(folder)): (
            os.readlink(path) if path.is_symlink() else path.read_bytes(),
            path.lstat().st_mode,
        )
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def _without_digests(files: dict[str, Any]) -> dict[str, Any]:
    """Files with nothing of the digits in the names of shards, which an index names as well."""
    return {
        _DIGITS.sub(b"", name.encode()).decode(): (
            _DIGITS.sub(b"", content) if name.endswith(".index.json") else content,
            mode,
        )
        for name, (content, mode) in files.items()
    }


def temps_in(folder: Path) -> list[Path]:
    return list(folder.rglob(".aoserial-*.tmp"))


def in_child(act: Callable[[], Any]) -> Any:
    """What `act` returns in a forked process; None when that was killed."""
    return Child(act).result()


class Child:
    """A forked process that calls `act`.

    Args:
        stopped: it waits to be sent SIGCONT before it begins.
    """

    def __init__(self, act: Callable[[], Any], *, stopped: bool = False) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            os.close(self._reading)
            _be_child(act, writing, stopped)
        os.close(writing)
        if stopped:
            os.waitpid(self.pid, os.WUNTRACED)

    def result(self) -> Any:
        """What `act` returned; None when the process was killed."""
        try:
            with os.fdopen(self._reading, "rb") as stream:
                data = stream.read()
        finally:
            _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            assert os.WTERMSIG(status) == signal.SIGKILL, status
            return None
        assert status == 0, f"the process ended with {status}"
        return pickle.loads(data)


def _be_child(act: Callable[[], Any], writing: int, stopped: bool) -> NoReturn:
    status = 1
    try:
        send = os.write
        if stopped:
            os.kill(os.getpid(), signal.SIGSTOP)
        data = pickle.dumps(act())
        while data:
            data = data[send(writing, data) :]
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(status)


def until(deadline: float, condition: Callable[[], bool]) -> bool:
    """Whether a condition came true in so many seconds."""
    end = time.monotonic() + deadline
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.002)
    return False
