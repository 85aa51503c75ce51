"""A safetensors file as an archive: its metadata says what its tensors are. Torch-free."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aoserial.checkpoint.archives.archive import FileArchive
from aoserial.checkpoint.marks import Mark
from aoserial.errors import AoserialError, IntegrityError, each_of, locating
from aoserial.record import Catalog
from aoserial.record.envelope import ENVELOPE_KEY, decode_envelope
from aoserial.storage import Source
from aoserial.storage.progress import Tally
from aoserial.storage.safetensors import (
    Entry,
    Header,
    SafetensorsFile,
    drop_journal,
    read_header,
)

if TYPE_CHECKING:
    import torch

TORCHAO_NAMES_KEY = "tensor_names"  # `torchao.layout.NAMES_KEY`, known without its tables
CHUNK_BYTES = 4 << 20  # large enough that the reads do not show, small enough to stay in cache


class SafetensorsArchive(FileArchive):
    """See `Archive`."""

    format = "safetensors"
    # what the format has none of
    marks: Mapping[str, Mark] = {}
    values: Mapping[str, Any] = {}
    tree = None
    notes = ()

    def __init__(self, source: Source) -> None:
        self._file = SafetensorsFile(source, read_header(source))
        self.path = source.path
        self.nbytes = source.size
        self.header_bytes = len(self._file.header.raw)
        self.parts = self._file.parts

    @cached_property
    def catalog(self) -> Catalog:
        return self._described(None)

    def survey(self, faults: list[AoserialError]) -> Catalog | None:
        catalog, wrong = self._surveyed
        faults += wrong
        return catalog

    @cached_property
    def _surveyed(self) -> tuple[Catalog | None, list[AoserialError]]:
        """The catalog of all that adds up, and what does not."""
        wrong: list[AoserialError] = []
        try:
            found = self._described(wrong)
        except AoserialError as error:
            return None, each_of(error)
        return found, wrong

    def _described(self, faults: list[AoserialError] | None) -> Catalog:
        header = self._file.header
        with locating(file=self.path):
            try:
                found = catalog_of(header.metadata, header.entries, header.raw, faults=faults)
            except IntegrityError as error:
                error.add(header.doubt)
                raise
        if header.doubt and found.sealed and not faults:  # its digest says that it is whole
            drop_journal(self._file.source)
        return found

    @property
    def header(self) -> Header:
        return self._file.header

    @property
    def listed(self) -> Collection[str]:
        return self._file.header.entries.keys()

    def tensors(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._file.tensors(keys)

    def plain(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._file.tensors(keys)

    @property
    def checksums(self) -> Mapping[str, int]:
        return self._by_key(self.catalog)

    def checksum_faults(self, tally: Tally) -> Iterator[AoserialError]:
        catalog, _ = self._surveyed
        yield from self.part_faults(self._by_key(catalog) if catalog else {}, tally)

    def part_faults(self, checksums: Mapping[str, int], tally: Tally) -> Iterator[AoserialError]:
        """Reads the tensors of these keys; a fault for each whose CRC-32 is not the one given."""
        for key, expected in checksums.items():
            try:
                _check_crc(self._file.parts[key].chunks(CHUNK_BYTES), expected, tally)
            except AoserialError as fault:
                yield fault.locate(name=key)

    def _by_key(self, catalog: Catalog) -> dict[str, int]:
        crcs = catalog.crcs
        return dict(zip(self._file.header.entries, crcs, strict=True)) if crcs else {}

    @property
    def unverified(self) -> list[str]:
        catalog, _ = self._surveyed
        if catalog is None:
            return ["the header and the data: what has their digests cannot be read"]
        lacking = []
        if not catalog.sealed:
            lacking.append("the header: the file has no digest of it")
        if not catalog.crcs:
            lacking.append("the data: the file has no checksums")
        return lacking

    def chunks(self, size: int) -> Iterator[memoryview]:
        return self._file.source.chunks(0, self._file.source.size, size)

    def close(self) -> None:
        self._file.close()


def _check_crc(chunks: Iterable[memoryview], expected: int, tally: Tally) -> None:
    found = 0
    for chunk in chunks:
        found = zlib.crc32(chunk, found)
        tally.add(len(chunk))
    if found != expected:
        raise IntegrityError(
            f"CRC-32 is {found:08x}, the file says {expected:08x}: its bytes were changed after "
            f"they were written"
        )


def catalog_of(
    metadata: Mapping[str, str],
    entries: Mapping[str, Entry],
    header: bytes | None = None,
    *,
    partial: bool = False,
    faults: list[AoserialError] | None = None,
) -> Catalog:
    """The catalog of tensors by key, described by whatever metadata is there.

    Args:
        header: the header's bytes, to check their digest.
        partial: the tensors are one shard's: records that lack parts are put aside
            (`Catalog.pending`) instead of being an error.
        faults: takes what of an envelope does not add up, which is not raised then.
    """
    if ENVELOPE_KEY in metadata:
        return decode_envelope(metadata, entries, header, partial=partial, faults=faults)
    if TORCHAO_NAMES_KEY in metadata:
        from aoserial.torchao import decode_layout, is_torchao  # its tables take long to import

        if is_torchao(metadata):
            return decode_layout(metadata, entries, partial=partial)
    return Catalog(layout="plain", plain={key: key for key in entries}, metadata=dict(metadata))
