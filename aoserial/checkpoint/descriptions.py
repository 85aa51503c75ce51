"""What metadata says that a checkpoint holds, before its tensors are there. Torch-free.

`Loader` asks a description which keys a record waits for, and for the catalog of those records that
have all of theirs. Work is done once a key, however often the same metadata comes along.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TypeVar

from aoserial.record import Catalog
from aoserial.record.envelope import ENVELOPE_KEY, open_envelope, reconcile
from aoserial.storage.safetensors import Entry
from aoserial.torchao import decode_layout, is_torchao
from aoserial.torchao.layout import NAMES_KEY, declared_keys

T = TypeVar("T")


class Description(ABC):
    """What some metadata declares.

    Attributes:
        records: name → the keys that it waits for, of quantized tensors.
        plain: the names of plain tensors that it promises.
        allowed: plain names that may look like parts of a record.
        ties: name → name.
        closed: nothing but what it declares may come.
    """

    records: dict[str, tuple[str, ...]]
    plain: Collection[str] = ()
    allowed: Collection[str] = ()
    ties: Mapping[str, str] = {}
    closed: bool = False

    @abstractmethod
    def catalog(self, names: Collection[str], entries: Mapping[str, Entry]) -> Catalog:
        """The catalog of some of its records, all parts of which are in `entries`."""


def describe(metadata: Mapping[str, str]) -> Description | None:
    """What the metadata declares; None when it declares nothing.

    Raises:
        AoserialError: metadata that is malformed, or of a newer version.
    """
    if ENVELOPE_KEY in metadata:
        return _Enveloped(metadata)
    if is_torchao(metadata):
        return _OfTorchao(metadata)
    return None


def _only(keys: Mapping[str, T], names: Collection[str]) -> dict[str, T]:
    return {name: keys[name] for name in names if name in keys}


class _Enveloped(Description):
    """Ours: whatever it does not name is a plain tensor."""

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._envelope, _ = open_envelope(metadata, None)
        self.records = {
            name: row.keys_of(name) for row in self._envelope.rows for name in row.names
        }
        self._rows = {name: row for row in self._envelope.rows for name in row.names}
        self.plain = self.allowed = self._envelope.plain
        self.ties = self._envelope.ties

    def catalog(self, names: Collection[str], entries: Mapping[str, Entry]) -> Catalog:
        rows: dict[int, list[str]] = {}
        for name in names:
            rows.setdefault(id(self._rows[name]), []).append(name)
        chosen = tuple(
            replace(row := self._rows[held[0]], names=tuple(held), keys=_only(row.keys, held))
            for held in rows.values()
        )
        return reconcile(replace(self._envelope, rows=chosen, ties={}, plain=()), entries)


class _OfTorchao(Description):
    """torchao's: it names every tensor."""

    closed = True

    def __init__(self, metadata: Mapping[str, str]) -> None:
        self._metadata = metadata
        declared = declared_keys(metadata)
        self.records = {name: keys for name, keys in declared.items() if keys != (name,)}
        self.plain = [name for name, keys in declared.items() if keys == (name,)]

    def catalog(self, names: Collection[str], entries: Mapping[str, Entry]) -> Catalog:
        chosen = {name: self._metadata[name] for name in names}
        return decode_layout({**chosen, NAMES_KEY: json.dumps(list(names))}, entries)
