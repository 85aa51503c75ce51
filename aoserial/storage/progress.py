"""How long work tells how far it is. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


class Progress(Protocol):
    """What `progress=` takes: a function, or an object with `__call__`.

    It is called now and then in the thread that works, at the end with `done == total`; what it
    returns is ignored, and what it raises ends the work as an error of the disk would. `total` is
    that of one piece of work, and stays. One that also has `shard` is a `ShardProgress`.
    """

    def __call__(self, done: int, total: int, /) -> object:
        """Told of bytes done and bytes in all; of a set, those of all its files."""


@runtime_checkable
class ShardProgress(Progress, Protocol):
    """A `Progress` that is told of each file of a set as well.

    Files that are gone on with are told of once, as done. A checkpoint of one file has no shards,
    so `shard` is not called for it.
    """

    def shard(self, name: str, done: int, total: int, /) -> object:
        """Told of bytes done and bytes in all of the shard of that name; `__call__` comes next."""


class OfShard:
    """The `Progress` of the writer of one shard: tells of the shard, and of the whole set.

    Args:
        before: bytes of the set that were done when the shard was begun.
        total: bytes of the set.
    """

    def __init__(self, progress: Progress, name: str, *, before: int, total: int) -> None:
        self._progress, self._name = progress, name
        self._before, self._total = before, total

    def __call__(self, done: int, total: int, /) -> None:
        if isinstance(self._progress, ShardProgress):
            self._progress.shard(self._name, done, total)
        self._progress(self._before + done, self._total)


class Tally:
    """Counts the bytes that reading goes through, and tells of them.

    Attributes:
        heard: whether there is anybody to tell.

    Args:
        total: bytes in all.
        shards: bytes of each file of a set; empty for one file.
    """

    def __init__(
        self, progress: Progress | None, total: int, shards: Mapping[str, int] | None = None
    ) -> None:
        self._progress = progress
        self.heard = progress is not None
        self._total, self._done, self._told = total, 0, 0
        self._shards = dict(shards or {}) if isinstance(progress, ShardProgress) else {}
        self._done_of = dict.fromkeys(self._shards, 0)
        self._shard: str | None = None

    def begin(self, shard: str | None) -> None:
        """What is read next is of that shard."""
        self._shard = shard

    def add(self, count: int) -> None:
        """So many bytes more are done."""
        if self._progress is None:
            return
        self._done = min(self._done + count, self._total)
        if self._shard in self._shards:
            of_shard = self._done_of[self._shard] + count
            self._done_of[self._shard] = min(of_shard, self._shards[self._shard])
        if self._done - self._told >= _STEP_BYTES:
            self._tell(self._shard)

    def reach(self, done: int) -> None:
        """So many bytes are done in all: what is not there to be read counts as read."""
        if self._progress is not None and done > self._done:
            self._done = min(done, self._total)
            self._tell(None)

    def end(self) -> None:
        """All is done."""
        if self._progress is None:
            return
        self._done, self._done_of = self._total, dict(self._shards)
        for shard in self._shards:
            self._tell(shard)
        if not self._shards:
            self._tell(None)

    def _tell(self, shard: str | None) -> None:
        assert self._progress is not None
        self._told = self._done
        if shard in self._shards and isinstance(self._progress, ShardProgress):
            self._progress.shard(shard, self._done_of[shard], self._shards[shard])
        self._progress(self._done, self._total)


_STEP_BYTES = 1 << 20  # told of at once: a call for each of 40,000 small tensors would be noticed

SILENT = Tally(None, 0)  # tells nobody
