"""What the shards of a set say together: one catalog. Torch-free.

Our shards describe each its own records. Sets that were flattened first and split then have one
description of all: in every shard, as transformers writes torchao's, or in the index alone, as
huggingface_hub does.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, cast

from aoserial.checkpoint.archives.archive import FileArchive
from aoserial.checkpoint.archives.safetensors import SafetensorsArchive
from aoserial.errors import (
    AoserialError,
    CollisionError,
    EnvelopeError,
    ShardIndexError,
    each_of,
    locating,
    raise_all,
)
from aoserial.record import Catalog
from aoserial.record.envelope import (
    ENVELOPE_KEY,
    Envelope,
    agreed,
    decode_checksums,
    join_envelopes,
    open_envelope,
    reconcile,
)
from aoserial.record.fields import parse_strings
from aoserial.storage.pickle import StateDict
from aoserial.storage.progress import Tally
from aoserial.storage.safetensors import Entry
from aoserial.storage.shards import Index
from aoserial.torchao import decode_layout, is_torchao
from aoserial.torchao.layout import NAMES_KEY


class Join(ABC):
    """The shards of a set, by the names the index has for them, as one.

    Attributes:
        tree: as of an `Archive`.
    """

    tree: Any

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """What they hold; made once."""

    def survey(self, faults: list[AoserialError]) -> Catalog | None:
        """As of an `Archive`."""
        try:
            return self.catalog
        except AoserialError as error:
            faults += each_of(error)
            return None

    @abstractmethod
    def checksums(self, name: str) -> Mapping[str, int]:
        """As of an `Archive`, of one shard."""

    @abstractmethod
    def checksum_faults(self, name: str, tally: Tally) -> Iterator[AoserialError]:
        """As of an `Archive`, of one shard."""

    @abstractmethod
    def unverified(self, name: str) -> list[str]:
        """As of an `Archive`, of one shard."""


class JoinedSafetensors(Join):
    tree = None

    def __init__(self, index: Index, shards: Mapping[str, FileArchive]) -> None:
        self._index = index
        self._shards = cast("Mapping[str, SafetensorsArchive]", shards)
        self._envelopes: dict[str, tuple[Envelope, bool]] = {}
        self._wrong: list[AoserialError] = []
        self._readable = True
        for name, shard in self._shards.items():
            if ENVELOPE_KEY not in shard.header.metadata:
                continue
            wrong: list[AoserialError] = []
            try:
                header = shard.header
                self._envelopes[name] = open_envelope(header.metadata, header.raw, wrong)
            except AoserialError as fault:
                self._readable = False
                wrong += each_of(fault)
            self._wrong += [fault.locate(shard=name) for fault in wrong]

    @cached_property
    def catalog(self) -> Catalog:
        raise_all(f"{len(self._wrong)} shards do not say what they hold", self._wrong)
        return self._made(None)

    def survey(self, faults: list[AoserialError]) -> Catalog | None:
        faults += self._wrong
        try:
            return self._made(faults) if self._readable else None
        except AoserialError as fault:
            faults += each_of(fault)
            return None

    def _made(self, faults: list[AoserialError] | None) -> Catalog:
        """The catalog; `faults`, if given, takes what of envelopes does not add up."""
        described = [shard.header.metadata for shard in self._shards.values()]
        described.append(self._index.metadata)
        ours = any(ENVELOPE_KEY in one for one in described)
        theirs = [one for one in described if is_torchao(one)]
        if ours and theirs:
            raise EnvelopeError("some shards are described by aoserial, others by torchao")
        if theirs:
            catalog = _by_torchao(theirs, self._entries())
            return self._with_metadata(catalog, drop=_names(theirs))
        if not ours:
            plain = {key: key for key in self._entries()}
            return self._with_metadata(Catalog(layout="plain", plain=plain))
        envelopes = [envelope for envelope, _ in self._envelopes.values()]
        if ENVELOPE_KEY in self._index.metadata:
            envelopes.append(open_envelope(self._index.metadata, None)[0])
        joined = join_envelopes(envelopes)
        catalog = self._with_metadata(reconcile(joined, self._entries(), faults=faults))
        sealed = [seal for _, seal in self._envelopes.values()]
        catalog.sealed = len(sealed) == len(self._shards) and all(sealed)
        return catalog

    def checksums(self, name: str) -> Mapping[str, int]:
        envelope, _ = self._envelopes.get(name, (None, False))
        if envelope is None or not envelope.crc32:
            return {}
        entries = self._shards[name].header.entries
        return dict(zip(entries, decode_checksums(envelope.crc32, len(entries)), strict=True))

    def checksum_faults(self, name: str, tally: Tally) -> Iterator[AoserialError]:
        yield from self._shards[name].part_faults(self.checksums(name), tally)

    def unverified(self, name: str) -> list[str]:
        envelope, sealed = self._envelopes.get(name, (None, False))
        facts = name in self._index.facts
        lacking = [] if sealed or facts else ["the header: the file has no digest of it"]
        if not facts and (envelope is None or not envelope.crc32):
            lacking.append("the data: the file has no checksums")
        return lacking

    def _entries(self) -> dict[str, Entry]:
        return {
            key: entry
            for shard in self._shards.values()
            for key, entry in shard.header.entries.items()
        }

    def _with_metadata(self, catalog: Catalog, drop: frozenset[str] = frozenset()) -> Catalog:
        """The catalog with the metadata on which index and shards agree."""
        described = [*(shard.header.metadata for shard in self._shards.values())]
        kept = agreed([*described, self._index.metadata])
        catalog.metadata = {
            key: text for key, text in kept.items() if key != ENVELOPE_KEY and key not in drop
        }
        return catalog


def _by_torchao(described: Sequence[Mapping[str, str]], entries: Mapping[str, Entry]) -> Catalog:
    """The catalog of torchao's metadata, which each file has whole, or of its own tensors."""
    if all(one == described[0] for one in described[1:]):
        return decode_layout(described[0], entries)
    joined: dict[str, str] = {}
    faults: list[AoserialError] = []
    names: dict[str, None] = {}
    for one in described:
        own = parse_strings(one[NAMES_KEY], f"torchao's {NAMES_KEY!r}")
        names.update(dict.fromkeys(own))
        for name in own:
            if name in one and joined.setdefault(name, one[name]) != one[name]:
                fault = CollisionError("torchao's metadata says two things of it in two shards")
                faults.append(fault.locate(name=name))
    raise_all(f"the shards contradict each other in {len(faults)} places", faults)
    return decode_layout({**joined, NAMES_KEY: json.dumps(list(names))}, entries)


def _names(described: Sequence[Mapping[str, str]]) -> frozenset[str]:
    """The keys of metadata that describe tensors."""
    names = [parse_strings(one[NAMES_KEY], f"torchao's {NAMES_KEY!r}") for one in described]
    return frozenset([NAMES_KEY]).union(*names)


class JoinedPickles(Join):
    def __init__(self, _: Index, shards: Mapping[str, FileArchive]) -> None:
        self._shards = shards
        self.tree = _tree(shards)

    @cached_property
    def catalog(self) -> Catalog:
        joined = Catalog(layout="pickle")
        for name, shard in self._shards.items():
            with locating(shard=name):
                one = shard.catalog
            joined.groups += one.groups
            joined.plain |= one.plain
            joined.ties |= one.ties
        return joined

    def checksums(self, name: str) -> Mapping[str, int]:
        return self._shards[name].checksums

    def checksum_faults(self, name: str, tally: Tally) -> Iterator[AoserialError]:
        yield from self._shards[name].checksum_faults(tally)

    def unverified(self, name: str) -> list[str]:
        return self._shards[name].unverified


def _tree(shards: Mapping[str, FileArchive]) -> dict[Any, Any]:
    """The dicts of all shards as one."""
    tree: dict[Any, Any] = {}
    faults: list[AoserialError] = []
    for name, shard in shards.items():
        if not isinstance(shard.tree, dict | StateDict):
            fault = ShardIndexError("holds no dict of tensors, as a shard must")
            faults.append(fault.locate(shard=name))
            continue
        faults += [
            CollisionError(f"{key!r:.200} is in an earlier shard as well").locate(shard=name)
            for key in shard.tree
            if key in tree
        ]
        tree.update(shard.tree)
    raise_all(f"the shards do not make one dict, for {len(faults)} reasons", faults)
    return tree
