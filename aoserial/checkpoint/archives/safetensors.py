"""A safetensors file as an archive: its metadata says what its tensors are. Torch-free."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from aoserial.checkpoint.archives.archive import Archive
from aoserial.checkpoint.marks import Mark
from aoserial.errors import IntegrityError, locating
from aoserial.record import Catalog
from aoserial.record.envelope import ENVELOPE_KEY, decode_envelope
from aoserial.storage import Source
from aoserial.storage.safetensors import Entry, SafetensorsFile, read_header
from aoserial.torchao import decode_layout, is_torchao

if TYPE_CHECKING:
    import torch

CHUNK_BYTES = 4 << 20  # large enough that the reads do not show, small enough to stay in cache


class SafetensorsArchive(Archive):
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
        header = self._file.header
        with locating(file=self.path):
            return catalog_of(header.metadata, header.entries, header.raw)

    def tensors(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._file.tensors(keys)

    def plain(self, keys: Sequence[str]) -> list[torch.Tensor]:
        return self._file.tensors(keys)

    def checksum_faults(self) -> Iterator[IntegrityError]:
        crcs = self.catalog.crcs
        for key, expected in zip(self._file.header.entries, crcs, strict=bool(crcs)):
            found = 0
            for chunk in self._file.parts[key].chunks(CHUNK_BYTES):
                found = zlib.crc32(chunk, found)
            if found != expected:
                fault = IntegrityError(
                    f"CRC-32 is {found:08x}, the file says {expected:08x}: its bytes were changed "
                    f"after they were written"
                )
                yield fault.locate(name=key)

    @property
    def unverified(self) -> list[str]:
        lacking = []
        if not self.catalog.sealed:
            lacking.append("the header: the file has no digest of it")
        if not self.catalog.crcs:
            lacking.append("the data: the file has no checksums")
        return lacking

    def close(self) -> None:
        self._file.close()


def catalog_of(
    metadata: Mapping[str, str],
    entries: Mapping[str, Entry],
    header: bytes | None = None,
    *,
    partial: bool = False,
) -> Catalog:
    """The catalog of tensors by key, described by whatever metadata is there.

    Args:
        header: the header's bytes, to check their digest.
        partial: the tensors are one shard's: records that lack parts are put aside
            (`Catalog.pending`) instead of being an error.
    """
    if ENVELOPE_KEY in metadata:
        return decode_envelope(metadata, entries, header, partial=partial)
    if is_torchao(metadata):
        return decode_layout(metadata, entries, partial=partial)
    return Catalog(layout="plain", plain={key: key for key in entries}, metadata=dict(metadata))
