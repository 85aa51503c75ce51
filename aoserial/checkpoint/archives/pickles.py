"""A torch.save file as an archive: a tree whose tensors have dotted names. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, cast

from aoserial.checkpoint.archives.archive import FileArchive
from aoserial.checkpoint.marks import Mark
from aoserial.errors import AoserialError, EraError, escape, locating
from aoserial.record import Catalog
from aoserial.record.pickled import Pickled, decode_pickle, unwrapped
from aoserial.storage import Source
from aoserial.storage.pickle import (
    ObjectValue,
    ParameterValue,
    PickleFile,
    StoragePart,
    TensorSubclass,
    WrapperSubclass,
    tensors_inside,
)
from aoserial.storage.progress import Tally
from aoserial.torchao.pickled import identify

if TYPE_CHECKING:
    import torch


SET_ON_TENSOR = "attributes that were set on the tensor are no part of it"


class PickleArchive(FileArchive):
    """See `Archive`."""

    def __init__(self, source: Source) -> None:
        self._file = PickleFile(source)
        self.path = source.path
        self.format = f"torch.save ({self._file.container})"
        self.nbytes = source.size
        self.header_bytes = source.size - sum(one.nbytes for one in self._file.storages.values())
        objects: dict[str, ObjectValue] = {}
        with locating(file=self.path):
            self._found: Pickled = decode_pickle(self._file.tensors(objects.setdefault))
        self.parts = self._found.parts
        self.values = self._found.values
        self.tree = self._file.tree
        self.marks = dict(_marks(self._found))
        self.notes = [*self._file.notes, *_set_on_tensors(self._found), *_in_objects(objects)]

    @cached_property
    def catalog(self) -> Catalog:
        """The catalog, its groups of torchao's types told by their fields."""
        for group in self._found.catalog.groups:
            try:
                found = identify(group.template)
            except EraError as fault:
                group.fault = fault
                continue
            if found is not None:
                group.template, group.era = found.record, found.era
        return self._found.catalog

    @property
    def listed(self) -> Collection[str]:
        return self.values.keys()

    def tensors(self, keys: Sequence[str]) -> list[torch.Tensor]:
        parts = self.parts
        return [parts[key].read() for key in keys]

    def plain(self, keys: Sequence[str]) -> list[torch.Tensor]:
        from aoserial.storage.pickle.views import as_saved  # imports torch

        plain = cast("dict[str, StoragePart]", self.parts)
        return as_saved(
            [plain[key] for key in keys], [plain[key] for key in self.catalog.plain.values()]
        )

    def checksum_faults(self, tally: Tally) -> Iterator[AoserialError]:
        yield from self._file.verify(tally)

    @property
    def unverified(self) -> list[str]:
        lacking = ["what its tensors mean: torch.save keeps no digest of it"]
        if any(storage.crc32 is None for storage in self._file.storages.values()):
            lacking.append("the data: the file has no checksums of it, or of some")
        return lacking

    def chunks(self, size: int) -> Iterator[memoryview]:
        return self._file.source.chunks(0, self._file.source.size, size)

    def close(self) -> None:
        self._file.close()


def _marks(found: Pickled) -> Iterator[tuple[str, Mark]]:
    for name, value in found.values.items():
        if type(value) is ParameterValue:
            yield name, Mark(True, value.requires_grad)
        elif type(value) in _TRAINABLE and value.requires_grad:
            yield name, Mark(False, True)


_TRAINABLE = (StoragePart, WrapperSubclass)


def _in_objects(objects: dict[str, ObjectValue]) -> Iterator[str]:
    """A note for each unknown object that has tensors: they belong to it, and have no names."""
    for name, value in objects.items():
        if count := tensors_inside(value):
            what = f"{name or 'the file'} is an object of {escape(value.path[:200])}"
            yield f"{what}: {count} tensors in it are in the tree alone"


def _set_on_tensors(found: Pickled) -> Iterator[str]:
    """A note for each tensor that somebody set attributes on: they are in the tree alone."""
    for name, value in found.values.items():
        attributed = type(value) is ParameterValue or (
            type(value) is TensorSubclass and unwrapped(value) is not value
        )
        if attributed and value.state:
            yield f"{name}: {SET_ON_TENSOR}"
