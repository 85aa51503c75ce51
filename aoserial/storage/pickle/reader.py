"""PickleFile: a file of torch.save, opened without running it. Torch-free to import."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Self

from aoserial.errors import AoserialError, locating
from aoserial.storage.closing import Closing
from aoserial.storage.collecting import collector_paused
from aoserial.storage.pickle.archive import Archive
from aoserial.storage.pickle.legacy import Legacy
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.paths import check_depth, named_tensors
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.tar import Tar
from aoserial.storage.pickle.values import ObjectValue, Value
from aoserial.storage.progress import SILENT, Tally
from aoserial.storage.sniff import SNIFF_BYTES, pickle_container
from aoserial.storage.source import Source

CONTAINERS: dict[str, type[Archive] | type[Legacy] | type[Tar]] = {
    "zip": Archive,
    "legacy": Legacy,
    "tar": Tar,
}


class PickleFile(Closing):
    """A file of torch.save, of any release: its tree as typed values, its storages as lazy bytes.

    Attributes:
        path: of the file.
        source: the opened file.
        container: `"zip"`, `"legacy"` or `"tar"`.
        tree: what was saved, with its own dicts, lists and keys (see `values` and `tensors`).
        storages: by key. Their bytes are not read before a part's are.
        notes: what is in the file and not in the tree: hooks, entries of unknown meaning.
    """

    def __init__(self, source: Source, limits: Limits = Limits()) -> None:  # noqa: B008 - frozen
        self.source = source
        self.limits = limits
        with locating(file=source.path), collector_paused():
            self.container = pickle_container(source.pread(0, min(SNIFF_BYTES, source.size)))
            contents = CONTAINERS[self.container](source, limits)
            self.tree: Value = contents.root
            self.storages: Mapping[str, StorageRef] = MappingProxyType(contents.storages)
            self.notes: list[str] = contents.notes
            check_depth(self.tree, limits)

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        mapped: bool = True,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> Self:
        """Opens the file and reads its pickle, and no tensor.

        Args:
            path: of a regular file.
            mapped: whether tensors lie in a private mapping of the file (see `Source`).
            limits: budgets.

        Raises:
            PathError: it is missing, or not a regular file.
            ContainerError: it is no file of torch.save, or a malformed one.
            PickleError: its pickle is malformed.
            BoundsError: a tensor reaches outside its storage, or a storage is missing some of it.
            LimitError: a budget is spent.
            IntegrityError: its pickle is damaged.
        """
        source = Source.open(path, mapped=mapped)
        try:
            return cls(source, limits)
        except BaseException:
            source.close()
            raise

    @property
    def path(self) -> str:
        return self.source.path

    def tensors(
        self, passed: Callable[[str, ObjectValue], object] | None = None
    ) -> Iterator[tuple[str, Any]]:
        """The tensors of the tree with their dotted names, in order; see `named_tensors`."""
        return named_tensors(self.tree, self.limits, passed)

    def verify(self, tally: Tally = SILENT) -> list[AoserialError]:
        """Reads every storage and compares it with its CRC-32; returns what is wrong.

        Legacy files have no checksums, nor has an archive that was saved without.

        Args:
            tally: counts what was read.
        """
        faults: list[AoserialError] = []
        for storage in self.storages.values():
            try:
                storage.check_crc(tally)
            except AoserialError as error:
                faults.append(error)
        return faults

    def close(self) -> None:
        self.source.close()

    def __repr__(self) -> str:
        return f"<PickleFile {self.path!r}, {self.container}, {len(self.storages)} storages>"
