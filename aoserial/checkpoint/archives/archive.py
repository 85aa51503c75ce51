"""What the stages above storage know of an opened file. Torch-free."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aoserial.checkpoint.marks import Mark
from aoserial.errors import AoserialError, each_of
from aoserial.record import Catalog
from aoserial.storage import Closing, Part
from aoserial.storage.progress import Tally

if TYPE_CHECKING:
    import torch


class Archive(Closing):
    """An opened file.

    Attributes:
        path: of the file.
        format: `safetensors`, or `torch.save (zip)`, `(legacy)`, `(tar)`.
        nbytes: of the file.
        header_bytes: of what was read to know what it holds.
        parts: its plain tensors by key, alone or inside records.
        marks: name → mark, of the tensors that have one.
        values: name → what a pickle has there, an inert value; empty for a safetensors file.
        tree: all that a pickle holds, as inert values; None for a safetensors file.
        notes: what is in the file, and neither among its tensors nor in its tree.
    """

    path: str
    format: str
    nbytes: int
    header_bytes: int
    parts: Mapping[str, Part]
    marks: Mapping[str, Mark]
    values: Mapping[str, Any]
    tree: Any
    notes: Sequence[str]

    @property
    @abstractmethod
    def catalog(self) -> Catalog:
        """What the file holds, by name.

        Raises:
            AoserialError: what describes the tensors is malformed, or does not fit them.
        """

    def survey(self, faults: list[AoserialError]) -> Catalog | None:
        """The catalog as far as it can be had; what is wrong with it goes to `faults`."""
        try:
            return self.catalog
        except AoserialError as error:
            faults += each_of(error)
            return None

    @abstractmethod
    def tensors(self, keys: Sequence[str]) -> list[torch.Tensor]:
        """The tensors of parts, each contiguous and in a storage of its own."""

    @abstractmethod
    def plain(self, keys: Sequence[str]) -> list[torch.Tensor]:
        """Plain tensors as they were saved; pickles keep strides and shared storages."""

    @abstractmethod
    def checksum_faults(self, tally: Tally) -> Iterator[AoserialError]:
        """Reads every byte that has a checksum and counts it; a fault for each that is wrong."""

    @property
    def checksum_passes(self) -> int:
        """How often that reads each byte."""
        return 1

    @property
    def shard_sizes(self) -> Mapping[str, int]:
        """Name → bytes of each file of a set; empty for one file."""
        return {}

    def shard_of(self, key: str) -> str | None:  # noqa: ARG002 - sets override it
        """The name of the shard that a part lies in; None in one file."""
        return None

    @property
    def checksums(self) -> Mapping[str, int]:
        """CRC-32 of parts by key, of those that the file says one of."""
        return {}

    @property
    @abstractmethod
    def unverified(self) -> list[str]:
        """What the file carries no digest for."""


class FileArchive(Archive):
    """An archive that is one file, and so may be a shard of several."""

    @property
    @abstractmethod
    def listed(self) -> Collection[str]:
        """What an index lists of it: the keys of a safetensors file, of a pickle the tensors."""

    @abstractmethod
    def chunks(self, size: int) -> Iterator[memoryview]:
        """The whole file in pieces of at most `size`; each is valid until the next is asked for."""
