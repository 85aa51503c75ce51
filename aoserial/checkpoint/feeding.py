"""Tensors taken in as they come, for those who own their reading: `Loader`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from aoserial.checkpoint.contents import prepare, upgrader_for
from aoserial.checkpoint.descriptions import Description, describe
from aoserial.checkpoint.loading import refuse_unknown
from aoserial.errors import (
    AoserialError,
    CollisionError,
    LeftoverError,
    MissingPartError,
    UnsupportedOperationError,
    UnsupportedTensorError,
    raise_all,
)
from aoserial.record import strays
from aoserial.record.envelope import ENVELOPE_KEY
from aoserial.storage.collecting import collector_paused
from aoserial.tensors import Loaded
from aoserial.tensors.assembling import assemble, entries_of
from aoserial.torchao.layout import NAMES_KEY


class Loader:
    """Builds tensors from plain ones that arrive in any order and any portions.

        loader = aoserial.Loader()
        for path in shards:
            with safetensors.safe_open(path, "pt") as file:
                tensors = {key: file.get_tensor(key) for key in file.keys()}
                for name, tensor in loader.feed(tensors, file.metadata()).items():
                    ...
        loader.finish()

    It holds the tensors of records that are not whole yet, and nothing else; what it hands out lies
    over the tensors that were fed. After an error it is of no further use.

    Args:
        strict: raise for tensors of unknown types; otherwise they come as `InertTensor`.
        assume: answers to what a checkpoint cannot tell.
    """

    def __init__(self, *, strict: bool = True, assume: Mapping[str, str] | None = None) -> None:
        self._strict = strict
        self._upgrader = upgrader_for(assume)
        self._known: set[object] = set()  # metadata that was taken in
        self._last: tuple[object, object] | None = None
        self._closed = False  # every tensor must be declared
        self._homes: dict[str, Description] = {}  # of each record
        self._owners: dict[str, str] = {}  # key → record
        self._lacking: dict[str, int] = {}  # record → how many of its keys have not come
        self._held: dict[str, torch.Tensor] = {}
        self._promised: set[str] = set()
        self._allowed: set[str] = set()
        self._tied: dict[str, list[str]] = {}  # target → names
        self._came: set[str] = set()  # all keys
        self._given: set[str] = set()  # all names
        self._plain: set[str] = set()
        self._finished = False

    def feed(
        self, tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str] | None = None
    ) -> dict[str, Loaded]:
        """Takes in some tensors; gives what became whole, by name.

        Args:
            tensors: any number, by the keys of a file.
            metadata: of that file, or of all: it may be given again, and must have been given
                before the tensors of a record that it describes, or with them.

        Raises:
            CollisionError: a key that came before, a name described twice.
            AoserialError: metadata that is malformed, records that cannot be resolved; `Faults`
                for several.
        """
        if self._finished:
            raise UnsupportedOperationError("the loader has finished")
        self._learn(metadata or {})
        faults = list(self._faults_of(tensors))
        raise_all(f"{len(faults)} tensors are not taken in", faults)
        self._came.update(tensors)
        ready: dict[str, Loaded] = {}
        whole: dict[int, tuple[Description, list[str]]] = {}
        for key, tensor in tensors.items():
            owner = self._owners.get(key)
            if owner is not None:
                self._held[key] = tensor
                self._lacking[owner] -= 1
                if not self._lacking[owner]:
                    home = self._homes[owner]
                    whole.setdefault(id(home), (home, []))[1].append(owner)
            elif self._closed and key not in self._promised:
                self._held[key] = tensor
            else:
                self._promised.discard(key)
                self._plain.add(key)
                ready[key] = tensor
        with collector_paused():
            for description, names in whole.values():
                ready.update(self._build(description, names))
        for name in list(ready):
            ready.update(dict.fromkeys(self._tied.pop(name, ()), ready[name]))
        self._given.update(ready)
        return ready

    def finish(self) -> None:
        """Ends the loading.

        Raises:
            MissingPartError: a record that never became whole, a tie without its target, a plain
                tensor that was promised.
            LeftoverError: a tensor that nothing described; `Faults` for all that is wrong.
        """
        self._finished = True
        faults = list(self._leftovers())
        raise_all(f"{len(faults)} things are missing or left over", faults)

    def _learn(self, metadata: Mapping[str, str]) -> None:
        """Takes in what metadata declares, once."""
        text = metadata.get(ENVELOPE_KEY, metadata.get(NAMES_KEY))
        if self._last is not None and self._last[0] is metadata and self._last[1] is text:
            return
        self._last = (metadata, text)
        # our envelope is all that matters of the metadata; of torchao's all of it does
        proof = text if ENVELOPE_KEY in metadata else frozenset(metadata.items())
        if proof in self._known:
            return
        self._known.add(proof)
        description = describe(metadata)
        if description is None:
            return
        faults: list[AoserialError] = []
        for name, keys in description.records.items():
            if name in self._homes or name in self._given:
                faults.append(CollisionError("is described twice").locate(name=name))
                continue
            self._homes[name] = description
            self._lacking[name] = len(keys)
            for key in keys:
                faults += self._claim(name, key)
        for name, target in description.ties.items():
            self._tied.setdefault(target, []).append(name)
            if target in self._given:
                fault = CollisionError(f"is tied to {target!r:.200}, which was handed out before")
                faults.append(fault.locate(name=name))
        self._promised.update(name for name in description.plain if name not in self._came)
        self._allowed.update(description.allowed)
        self._closed = self._closed or description.closed
        raise_all(f"the metadata does not go with what came before in {len(faults)} places", faults)

    def _claim(self, name: str, key: str) -> Iterator[AoserialError]:
        if key in self._came and key not in self._held:
            yield CollisionError(
                f"its part {key!r:.200} was handed out as a plain tensor, before anything said "
                f"that it belongs to a record: feed the metadata first"
            ).locate(name=name)
        owner = self._owners.setdefault(key, name)
        if owner != name:
            yield CollisionError(f"{key!r:.200} is claimed by {owner!r:.200} as well").locate(
                name=name
            )
        elif key in self._held:
            self._lacking[name] -= 1

    def _faults_of(self, tensors: Mapping[str, object]) -> Iterator[AoserialError]:
        for key, tensor in tensors.items():
            if key in self._came:
                yield CollisionError("came before").locate(name=key)
            if not isinstance(tensor, torch.Tensor):
                kind = type(tensor).__name__
                yield UnsupportedTensorError(f"is a {kind}, not a tensor").locate(name=key)

    def _build(self, description: Description, names: list[str]) -> Iterator[tuple[str, Loaded]]:
        tensors = {key: self._held.pop(key) for name in names for key in description.records[name]}
        entries = entries_of(tensors)
        for name in names:
            del self._lacking[name]
        prepared = prepare(description.catalog(names, entries), self._upgrader)
        if self._strict:
            refuse_unknown(prepared)
        for one in prepared:
            yield from assemble(one.group, one.outcome, tensors, reason=one.reason)

    def _leftovers(self) -> Iterator[AoserialError]:
        for name in self._lacking:
            keys = self._homes[name].records[name]
            missing = ", ".join(repr(key) for key in keys if key not in self._held)
            yield MissingPartError(f"never became whole: {missing:.400} did not come").locate(
                name=name
            )
        for key in self._held:
            if key not in self._owners:
                yield LeftoverError("nothing says what this tensor is").locate(name=key)
        for name in self._promised - self._given:
            yield MissingPartError("is described as a plain tensor, and did not come").locate(
                name=name
            )
        for target, names in self._tied.items():
            for name in names:
                yield MissingPartError(f"is tied to {target!r:.200}, which did not come").locate(
                    name=name
                )
        for key, name in strays(self._plain - self._allowed, self._homes):
            yield LeftoverError(
                f"looks like a part of {name!r:.200}, whose record does not declare it"
            ).locate(name=key)
