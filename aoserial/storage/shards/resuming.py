"""Which shards of a set that is being written are finished, kept for one who goes on. Torch-free.

A journal lies beside the shards until the index is written: what the set is made of, and a line for
each finished shard. It is taken at its word for one and the same work alone, and for a shard only
if the file has the size and the SHA-256 that it says. So a torn, old or foreign journal costs the
time that it would have saved.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any

from aoserial.errors import AoserialError
from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.shards.index import ShardFacts
from aoserial.storage.shards.names import SUFFIX, ShardName
from aoserial.storage.shards.target import Target
from aoserial.storage.source import Source

_CHUNK_BYTES = 4 << 20
_BROKEN = (AoserialError, ValueError, TypeError, KeyError, AttributeError, RecursionError)
_LARGEST = 16 << 20  # bytes of a journal: that of the most shards a set may have is smaller


@dataclass(frozen=True, kw_only=True, slots=True)
class Resume:
    """That a set may be gone on with.

    Attributes:
        origin: what the set is made from, such that another text is other work.
        go_on: look for a journal of the same work; otherwise begin anew.
    """

    origin: str
    go_on: bool = False


@dataclass(kw_only=True)
class Journal:
    """The journal of a set that is being written.

    Attributes:
        work: a digest of all that decides the bytes of the set.
        names: of the shards, those with a place for digests if the first attempt needed them.
        finished: number of a shard → its final name, and what the index says of it.
    """

    path: str
    work: str
    names: Sequence[str]
    finished: dict[int, tuple[str, ShardFacts]] = field(default_factory=dict)

    def add(self, number: int, name: str, facts: ShardFacts, durability: Durability) -> None:
        """Notes a finished shard; the journal is replaced whole."""
        self.finished[number] = (name, facts)
        rows = [
            {"number": number, "name": name, **asdict(facts)}
            for number, (name, facts) in self.finished.items()
        ]
        raw = json.dumps({"work": self.work, "names": list(self.names), "finished": rows}).encode()
        with AtomicFile(self.path, durability=durability) as file:
            file.write(raw)


def journal_path(target: Target) -> str:
    return os.path.join(target.folder, f".aoserial-{target.stem}.resume.json")


def remove_journal(target: Target) -> None:
    """Removes the journal once a set is whole: its own, or of work that was begun here before."""
    with suppress(OSError):  # a journal of a set that is whole harms nobody
        os.unlink(journal_path(target))


def work_of(origin: str, headers: Iterable[bytes], metadata: Mapping[str, str]) -> str:
    """The SHA-256 of what decides the bytes of a set."""
    digest = hashlib.sha256(origin.encode())
    for header in headers:
        digest.update(hashlib.sha256(header).digest())
    digest.update(json.dumps(dict(metadata), sort_keys=True).encode())
    return digest.hexdigest()


def read_journal(target: Target, work: str) -> Journal | None:
    """The journal of the same work, with the shards that are still as it says; None without one."""
    path = journal_path(target)
    try:
        told = _told(path)
        if told["work"] != work:
            return None
        journal = Journal(path=path, work=work, names=[str(name) for name in told["names"]])
        for row in told["finished"]:
            number, name = int(row.pop("number")), str(row.pop("name"))
            facts = ShardFacts(**row)
            if os.path.basename(name) == name and _is(os.path.join(target.folder, name), facts):
                journal.finished[number] = (name, facts)
    except _BROKEN:
        return None
    return journal


def begun(target: Target) -> set[str]:
    """The names of shards that work left whose journal lies here, whatever work it was."""
    try:
        told = _told(journal_path(target))
        names = {*told["names"], *(row["name"] for row in told["finished"])}
        shards = [ShardName.parse(name) for name in names]
    except _BROKEN:
        return set()
    return {str(one) for one in shards if one and (one.stem, one.suffix) == (target.stem, SUFFIX)}


def _told(path: str) -> Any:
    with Source.open(path, mapped=False) as source:
        return json.loads(source.pread(0, min(source.size, _LARGEST)))


def _is(path: str, facts: ShardFacts) -> bool:
    """Whether a file is the shard that was finished."""
    try:
        with Source.open(path, mapped=False) as source:
            if source.size != facts.nbytes:
                return False
            digest = hashlib.sha256()
            for chunk in source.chunks(0, source.size, _CHUNK_BYTES):
                digest.update(chunk)
    except AoserialError:
        return False
    return digest.hexdigest() == facts.sha256
