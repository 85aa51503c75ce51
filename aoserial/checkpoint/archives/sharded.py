"""A checkpoint of several files as one archive. Torch-free.

Index and shards are held against each other when it is opened, so that all that is wrong with a set
comes in one error, before any tensor is read. Which file a tensor lies in matters to nobody
afterwards: a record's parts may lie in several, and names be tied across them.
"""

from __future__ import annotations

import errno
import hashlib
import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from aoserial.checkpoint.archives.archive import Archive, FileArchive
from aoserial.checkpoint.archives.fitting import fit_faults
from aoserial.checkpoint.archives.joining import Join, JoinedPickles, JoinedSafetensors
from aoserial.checkpoint.archives.opening import open_file
from aoserial.checkpoint.archives.safetensors import CHUNK_BYTES, SafetensorsArchive
from aoserial.errors import (
    AoserialError,
    IntegrityError,
    ShardIndexError,
    each_of,
    locating,
    raise_all,
)
from aoserial.record import Catalog
from aoserial.storage import Part, Source
from aoserial.storage.progress import Tally
from aoserial.storage.shards import Index, gaps, read_index, resolve

if TYPE_CHECKING:
    import torch


_EXHAUSTED = (errno.EMFILE, errno.ENFILE)


class ShardedArchive(Archive):
    """See `Archive`. The shards are all safetensors files, or all of torch.save.

    Attributes:
        index: as in the file.
        shards: the opened files by the names that the index has for them.
    """

    def __init__(
        self, path: str, index: Index, shards: Mapping[str, FileArchive], *, index_bytes: int
    ) -> None:
        self.path = path
        self.index = index
        self.shards = shards
        self._homes = {key: archive for archive in shards.values() for key in archive.parts}
        self._names = {id(archive): name for name, archive in shards.items()}
        first = next(iter(shards.values()))
        self.format = f"{first.format} in {len(shards)} shards"
        self.nbytes = index_bytes + sum(archive.nbytes for archive in shards.values())
        self.header_bytes = index_bytes + sum(one.header_bytes for one in shards.values())
        self.parts: Mapping[str, Part] = _Parts(self._homes)
        self.marks = {key: mark for one in shards.values() for key, mark in one.marks.items()}
        self.values = {key: value for one in shards.values() for key, value in one.values.items()}
        kind = JoinedSafetensors if type(first) is SafetensorsArchive else JoinedPickles
        with locating(file=path):
            self._joined: Join = kind(index, shards)
            self.tree: Any = self._joined.tree
        self.notes = [f"{name}: {note}" for name, one in shards.items() for note in one.notes]
        self.notes += _size_note(index, self.parts)

    @classmethod
    def open(cls, source: Source) -> Self:
        """Reads an index, opens all shards it names, and holds them against it.

        Args:
            source: the index; it is closed.

        Raises:
            ShardIndexError, LimitError: not an index.
            PathError: a shard that may not be opened, before any is; `Faults` for several.
            MissingShardError, ShardIndexError, IntegrityError: what does not go together; `Faults`
                for several.
        """
        with source, locating(file=source.path):
            index = read_index(source)
            listed = index.shards
            if not listed:
                raise ShardIndexError("the index names no tensor")
            places, missing = resolve(os.path.dirname(source.path) or ".", listed)
            faults: list[AoserialError] = [*gaps(listed), *missing]
            shards: dict[str, FileArchive] = {}
            try:
                for name, place in places.items():
                    try:
                        with _in_shard(source.path, name):
                            shards[name] = open_file(Source.open(place))
                    except AoserialError as fault:
                        if getattr(fault, "errno", None) in _EXHAUSTED:
                            raise  # so will all others be, and it is no fault of theirs
                        faults += each_of(fault)
                faults += fit_faults(index, shards)
                for one in faults:
                    one.relocate(file=source.path)
                raise_all(f"index and shards disagree in {len(faults)} places", faults)
                return cls(source.path, index, shards, index_bytes=source.size)
            except BaseException:
                for archive in shards.values():
                    archive.close()
                raise

    @cached_property
    def catalog(self) -> Catalog:
        """What all shards hold together."""
        with locating(file=self.path):
            return self._joined.catalog

    def survey(self, faults: list[AoserialError]) -> Catalog | None:
        found: list[AoserialError] = []
        catalog = self._joined.survey(found)
        faults += [fault.relocate(file=self.path) for fault in found]
        return catalog

    def tensors(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._gather(keys, lambda shard, held: shard.tensors(held))

    def plain(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._gather(keys, lambda shard, held: shard.plain(held))

    @property
    def checksums(self) -> Mapping[str, int]:
        """Those that each shard says of its own."""
        found: dict[str, int] = {}
        for name in self.shards:
            with locating(file=self.path, shard=name):
                found |= self._joined.checksums(name)
        return found

    @property
    def checksum_passes(self) -> int:
        return 1 if self.index.facts.keys().isdisjoint(self.shards) else 2

    def checksum_faults(self, tally: Tally) -> Iterator[AoserialError]:
        """The SHA-256 of each shard where the index has it, and what its own checksums say.

        Both count: bytes that had gone bad before they were copied into a set have the SHA-256 of
        the index, and not the CRC-32 that they came with.
        """
        for name, shard in self.shards.items():
            tally.begin(name)
            facts = self.index.facts.get(name)
            faults: list[AoserialError] = []
            if facts is not None and (found := _sha256(shard, tally)) != facts.sha256:
                faults.append(
                    IntegrityError(
                        f"SHA-256 is {found[:12]}…, the index says {facts.sha256[:12]}…: it is not "
                        f"the file that was written with this index, or is damaged"
                    )
                )
            faults += self._joined.checksum_faults(name, tally)
            for fault in faults:
                yield fault.relocate(file=self.path, shard=name)

    @property
    def unverified(self) -> list[str]:
        lacking = Counter(what for name in self.shards for what in self._joined.unverified(name))
        all_of = len(self.shards)
        told = [f"{what} (in {count} of {all_of} shards)" for what, count in lacking.items()]
        if self.index.facts.keys() != self.shards.keys():
            told.append("whether the shards belong together: the index has no digests of them")
        return told

    @property
    def shard_sizes(self) -> Mapping[str, int]:
        return {name: shard.nbytes for name, shard in self.shards.items()}

    def shard_of(self, key: str) -> str:
        return self._names[id(self._homes[key])]

    def close(self) -> None:
        for shard in self.shards.values():
            shard.close()

    def _gather(
        self,
        keys: Sequence[str],
        read: Callable[[FileArchive, list[str]], list[torch.Tensor]],
    ) -> list[torch.Tensor]:
        """What the shards give for keys, each asked once, in the order of the keys."""
        homes = self._homes
        wanted: dict[int, tuple[FileArchive, list[int]]] = {}
        for place, key in enumerate(keys):
            home = homes[key]
            wanted.setdefault(id(home), (home, []))[1].append(place)
        gathered: dict[int, torch.Tensor] = {}
        for home, places in wanted.values():
            with _in_shard(self.path, self._names[id(home)]):
                found = read(home, [keys[place] for place in places])
            gathered.update(zip(places, found, strict=True))
        return [gathered[place] for place in range(len(keys))]


class _Parts(Mapping[str, Part]):
    """The parts of all shards."""

    def __init__(self, homes: Mapping[str, FileArchive]) -> None:
        self._homes = homes

    def __getitem__(self, key: str) -> Part:
        return self._homes[key].parts[key]

    def __contains__(self, key: object) -> bool:
        return key in self._homes

    def __iter__(self) -> Iterator[str]:
        return iter(self._homes)

    def __len__(self) -> int:
        return len(self._homes)


@contextmanager
def _in_shard(path: str, name: str) -> Iterator[None]:
    """Tells of whatever goes wrong that it is in a shard of a set."""
    try:
        yield
    except AoserialError as fault:
        fault.relocate(file=path, shard=name)
        raise


def _sha256(shard: FileArchive, tally: Tally) -> str:
    digest = hashlib.sha256()
    for chunk in shard.chunks(CHUNK_BYTES):
        digest.update(chunk)
        tally.add(len(chunk))
    return digest.hexdigest()


def _size_note(index: Index, parts: Mapping[str, Part]) -> list[str]:
    """Indexes that other programs edited are often wrong in this, and it harms nobody."""
    found = sum(part.nbytes for part in parts.values())
    if index.total_bytes in (None, found):
        return []
    return [f"the index says that all tensors have {index.total_bytes} bytes; they have {found}"]
