"""How far long work is: bars on a terminal, a plain line now and then elsewhere.

Both say bytes, bytes a second and time left, in all and of the shard in progress, on stderr. Work
that is over at once says nothing, and does not pay for rich, which takes 100 ms to import.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoserial.cli.render import say_aside, size
from aoserial.errors import escape
from aoserial.storage.progress import ShardProgress

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress, TaskID

BARS_AFTER_S = 0.5
FIRST_LINE_AFTER_S = 5.0
LINE_EVERY_S = 30.0  # two a minute: a log of a night's work stays readable

_WIDEST_NAME = 40  # of a shard beside its bar


class Watcher(ShardProgress):
    """What the commands give the library as `progress`.

    Attributes:
        of_set: whether the work is on a set of shards.
    """

    of_set = False

    def close(self) -> None:
        """The work is over, well or not."""


@contextmanager
def watching(verb: str) -> Iterator[Watcher]:
    """Shows the progress of what is done within.

    Args:
        verb: what is being done, as `migrating`.
    """
    watcher = Bars(verb) if _on_terminal() else Lines(verb)
    try:
        yield watcher
    finally:
        watcher.close()


def _on_terminal() -> bool:
    # a dumb terminal, as editors have, moves no cursor
    return sys.stderr.isatty() and os.environ.get("TERM", "") not in ("dumb", "unknown")


class Bars(Watcher):
    """A bar for all of the work, and one for the shard in progress above it."""

    def __init__(self, verb: str) -> None:
        self._verb = verb
        self._due = time.monotonic() + BARS_AFTER_S
        self._bars: RichProgress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._shard = ""

    def shard(self, name: str, done: int, total: int, /) -> None:
        self.of_set = True
        if self._begun():
            if name != self._shard:
                self._drop(self._shard)
                self._shard = name
            self._show(name, done, total)

    def __call__(self, done: int, total: int, /) -> None:
        if self._begun():
            self._show("", done, total)

    def close(self) -> None:
        if self._bars is not None:
            self._bars.stop()

    def _begun(self) -> bool:
        if self._bars is None and time.monotonic() >= self._due:
            self._bars = _bars()
            self._bars.start()
        return self._bars is not None

    def _show(self, name: str, done: int, total: int) -> None:
        assert self._bars is not None
        if name in self._tasks:
            self._bars.update(self._tasks[name], completed=done, total=total)
        else:
            told = escape(name) if name else self._verb
            self._tasks[name] = self._bars.add_task(told, completed=done, total=total)

    def _drop(self, name: str) -> None:
        assert self._bars is not None
        if name in self._tasks:
            self._bars.remove_task(self._tasks.pop(name))


def _bars() -> RichProgress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )
    from rich.table import Column

    name = Column(no_wrap=True, overflow="ellipsis", max_width=_WIDEST_NAME)
    return Progress(
        TextColumn("{task.description}", markup=False, table_column=name),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )


@dataclass(kw_only=True, slots=True)
class _Pace:
    """Bytes done at a time, from which to tell how fast they went since."""

    done: int
    at_s: float

    def told(self, done: int, total: int, now_s: float) -> str:
        """`1.0 GiB of 4.0 GiB, 210.0 MiB/s, 0:15 left`."""
        told = f"{size(done)} of {size(total)}"
        spent, moved = now_s - self.at_s, done - self.done
        self.done, self.at_s = done, now_s
        if spent <= 0 or moved <= 0:
            return told
        return (
            f"{told}, {size(int(moved / spent))}/s, {_spell((total - done) * spent / moved)} left"
        )


class Lines(Watcher):
    """A line when work has taken some seconds, and then now and then."""

    def __init__(
        self,
        verb: str,
        *,
        say: Callable[[str], Any] = say_aside,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._verb, self._say, self._clock = verb, say, clock
        self._due = clock() + FIRST_LINE_AFTER_S
        self._whole: _Pace | None = None
        self._part: _Pace | None = None
        self._shard: tuple[str, int, int] | None = None

    def shard(self, name: str, done: int, total: int, /) -> None:
        self.of_set = True
        if self._shard is None or self._shard[0] != name:
            self._part = _Pace(done=done, at_s=self._clock())
        self._shard = name, done, total

    def __call__(self, done: int, total: int, /) -> None:
        now = self._clock()
        if self._whole is None:
            self._whole = _Pace(done=done, at_s=now)
        if now < self._due or done == total:
            return
        self._due = now + LINE_EVERY_S
        told = f"{self._verb}: {self._whole.told(done, total, now)}"
        if self._shard is not None and self._part is not None:
            name, done, total = self._shard
            told += f"; {name}: {self._part.told(done, total, now)}"
        self._say(told)


def _spell(seconds: float) -> str:
    """`0:15`, `1:02:30`."""
    minutes, left = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{left:02}" if hours else f"{minutes}:{left:02}"
