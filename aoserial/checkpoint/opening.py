"""A checkpoint opened and read as it is asked for: `open`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.building import (
    build_group,
    migrated_record,
    read_plain,
    read_state,
    stored_record,
)
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.checkpoint.report import LoadReport
from aoserial.checkpoint.trees import live_tree
from aoserial.errors import NotARecordError, UnknownNameError, locating
from aoserial.record import Catalog, Record
from aoserial.storage import Closing
from aoserial.tensors import Loaded


class Checkpoint(Closing, Mapping[str, Loaded]):
    """An open checkpoint: a lazy, read-only mapping from name to tensor.

    Each access builds the tensor anew over the mapped file. Tensors stay valid after `close`.

    Attributes:
        report: what resolution and migration do to the records.
    """

    def __init__(self, file: Archive, prepared: list[Prepared]) -> None:
        self._file = file
        self._catalog = file.catalog
        self._prepared = prepared
        self._homes: dict[str, tuple[Prepared, tuple[str, ...]]] = {
            name: (one, keys) for one in prepared for name, keys in one.group.members.items()
        }
        self.report = LoadReport.of(file, prepared)

    def __getitem__(self, name: str) -> Loaded:
        name = self._catalog.ties.get(name, name)
        with locating(file=self._file.path, name=name):
            if name in self._homes:
                one, keys = self._homes[name]
                ((_, tensor),) = build_group(self._file, one, {name: keys})
                return tensor
            if name in self._catalog.plain:
                return read_plain(self._file, name)
            raise self._unknown(name)

    def __iter__(self) -> Iterator[str]:
        if self._file.values:
            yield from self._file.values
            return
        yield from self._homes
        yield from self._catalog.plain
        yield from self._catalog.ties

    def __len__(self) -> int:
        return len(self._homes) + len(self._catalog.plain) + len(self._catalog.ties)

    def __contains__(self, name: object) -> bool:
        return name in self._homes or name in self._catalog.plain or name in self._catalog.ties

    def record(self, name: str, *, migrated: bool = False) -> Record:
        """The record of a quantized tensor.

        Args:
            migrated: at the head of its type instead of as stored.

        Raises:
            NotARecordError: a plain tensor.
            UnknownNameError: no such name.
        """
        name = self._catalog.ties.get(name, name)
        if name not in self._homes:
            if name in self._catalog.plain:
                raise NotARecordError("is a plain tensor, which has no record").locate(
                    file=self._file.path, name=name
                )
            raise self._unknown(name).locate(file=self._file.path, name=name)
        one, keys = self._homes[name]
        take = migrated_record if migrated else stored_record
        return take(self._file, one, keys)

    def records(self, *, migrated: bool = False) -> dict[str, Record]:
        """The records of all quantized tensors, by name."""
        return {name: self.record(name, migrated=migrated) for name in self._homes}

    @property
    def tree(self) -> Any:
        """What was saved to a pickle, with its own dicts, lists and keys.

        Tensors are as this mapping gives them, one object for each that is one in the file, and
        those of unknown types inert. Objects of unknown classes are inert, too: they show their
        class's path and what they hold. Of a safetensors file it is the dict of all tensors.
        """
        with locating(file=self._file.path):
            state = read_state(self._file, self._prepared)
            if self._file.tree is None:
                return state
            values = self._file.values
            return live_tree(
                self._file.tree, {id(values[name]): tensor for name, tensor in state.items()}
            )

    @property
    def metadata(self) -> dict[str, str]:
        """The file's metadata that does not describe tensors."""
        return dict(self._catalog.metadata)

    @property
    def trail(self) -> list[dict[str, object]]:
        """The migrations that were run on the file."""
        return list(self._catalog.trail)

    @property
    def catalog(self) -> Catalog:
        """What the file says it holds."""
        return self._catalog

    def close(self) -> None:
        self._file.close()

    def __repr__(self) -> str:
        kinds = {one.group.template.type for one in self._prepared}
        return f"<Checkpoint {self._file.path!r}: {len(self)} tensors, {', '.join(sorted(kinds))}>"

    def _unknown(self, name: str) -> UnknownNameError:
        return UnknownNameError(f"the checkpoint has no tensor {name!r:.200}")


def open(  # noqa: A001 - called as aoserial.open
    path: str | os.PathLike[str], *, assume: Mapping[str, str] | None = None
) -> Checkpoint:
    """Opens a checkpoint without reading its tensors.

    Args:
        path: a safetensors or torch.save file; the first bytes decide, not the suffix.
        assume: answers to what a file cannot tell.

    Raises:
        MissingFileError, PathError: no such file, or not a regular one.
        FormatError, IntegrityError, LimitError: not a checkpoint this version reads.
        AoserialError: records that cannot be resolved; `Faults` when there are several.
    """
    upgrader = upgrader_for(assume)
    file = open_archive(path)
    try:
        with locating(file=os.fspath(path)):
            return Checkpoint(file, prepare(file.catalog, upgrader))
    except BaseException:
        file.close()
        raise
