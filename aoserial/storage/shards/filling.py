"""The shards of a set written one after the other, before an index names them. Torch-free."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import TracebackType
from typing import Self

from aoserial.errors import AoserialError, SaveError, locating
from aoserial.storage.atomic import Durability
from aoserial.storage.progress import OfShard, Progress, ShardProgress
from aoserial.storage.safetensors.writer import Finish, Planned, write_planned
from aoserial.storage.shards.generations import Generation
from aoserial.storage.shards.index import ShardFacts
from aoserial.storage.shards.names import ShardName
from aoserial.storage.shards.resuming import Journal
from aoserial.storage.shards.target import Target, check_room

Written = Mapping[int, tuple[str, ShardFacts]]  # number → final name, what the index says of it


class Unnamed:
    """The files of a set that no index names yet.

    With a journal they stay, for one who goes on; without one, nobody could, so an error or an
    interrupt removes them. A file that somebody else has put in the place of one of them stays.
    """

    def __init__(self, target: Target, journal: Journal | None) -> None:
        self._target, self._journal = target, journal
        self._files: dict[str, tuple[int, int]] = {}

    def note(self, name: str) -> None:
        """That file is written."""
        self._files[name] = _identity(os.path.join(self._target.folder, name))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None or self._journal is not None or not self._files:
            return
        with suppress(AoserialError, OSError):
            # an index whose writing failed may be there all the same
            named = Generation.of(self._target.folder, self._target.index).live
            for name, identity in self._files.items():
                path = os.path.join(self._target.folder, name)
                if name not in named and _identity(path) == identity:
                    os.unlink(path)


@contextmanager
def old_set_stays() -> Iterator[None]:
    """Until the index is written the set is unchanged, whatever becomes of a file beside it."""
    try:
        yield
    except SaveError as error:
        error.state = "unchanged"
        raise


def write_shards(
    target: Target,
    names: Sequence[ShardName],
    planned: Sequence[Planned],
    *,
    unnamed: Unnamed,
    journal: Journal | None,
    checksums: Mapping[str, int],
    finish: Finish | None,
    durability: Durability,
    progress: Progress | None,
) -> Written:
    """Writes the shards that a journal does not have; gives all of them, by number.

    Args:
        checksums: CRC-32 of parts by name, as far as they are known.

    Raises:
        SaveError: there is no room for them, or writing one failed; no index names any of them.
    """
    written = {} if journal is None else dict(journal.finished)
    total = sum(one.nbytes for one in planned)
    done = sum(planned[number].nbytes for number in written)
    check_room(target, total - done)
    if progress is not None and written:
        if isinstance(progress, ShardProgress):
            for number in written:
                nbytes = planned[number].nbytes
                progress.shard(_spelled(names[number]), nbytes, nbytes)
        progress(done, total)
    for number, (name, one) in enumerate(zip(names, planned, strict=True)):
        if number in written:
            continue
        shown = progress and OfShard(progress, _spelled(name), before=done, total=total)
        final, facts = _write_shard(
            target,
            name,
            one,
            checksums={key: checksums[key] for key in one.parts if key in checksums},
            finish=finish,
            durability=durability,
            progress=shown,
        )
        unnamed.note(final)
        if journal is not None:
            journal.add(number, final, facts, durability)
        written[number] = final, facts
        done += one.nbytes
    return written


def _write_shard(
    target: Target,
    name: ShardName,
    planned: Planned,
    *,
    checksums: Mapping[str, int],
    finish: Finish | None,
    durability: Durability,
    progress: Progress | None,
) -> tuple[str, ShardFacts]:
    """Writes a shard; its final name, and what the index says of it."""

    def final(sha256: str) -> str:
        named = replace(name, digest=sha256) if name.digest else name
        return os.path.join(target.folder, str(named))

    with locating(shard=_spelled(name)):
        saved = write_planned(
            os.path.join(target.folder, str(name)),
            planned,
            checksums=checksums,
            finish=finish,
            durability=durability,
            progress=progress,
            name=final,
        )
    facts = ShardFacts(
        nbytes=saved.nbytes,
        sha256=saved.sha256,
        header_sha256=hashlib.sha256(saved.header).hexdigest(),
    )
    return os.path.basename(final(saved.sha256)), facts


def _spelled(name: ShardName) -> str:
    """The name for people, before its digest is known."""
    return str(replace(name, digest=""))


def _identity(path: str) -> tuple[int, int]:
    status = os.lstat(path)
    return status.st_dev, status.st_ino
