"""Whether a checkpoint is what it says: `verify`.

Torch-free where only headers and checksums are looked at; `deep` imports it to look at values.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

from aoserial.checkpoint.contents import Prepared, prepare, read_catalog, upgrader_for
from aoserial.errors import AoserialError, Faults, IntegrityError, MissingFileError, PathError
from aoserial.record import Catalog
from aoserial.storage.safetensors import SafetensorsFile

CHUNK_BYTES = 4 << 20  # large enough that the reads do not show, small enough to stay in cache


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What `verify` found; true when it found no fault.

    Attributes:
        path: of the file.
        faults: all that is wrong, each with its location.
        unverified: what could not be checked, since the file carries no digest for it.
    """

    path: str
    faults: tuple[AoserialError, ...]
    unverified: tuple[str, ...]

    def __bool__(self) -> bool:
        return not self.faults


def verify(path: str | os.PathLike[str], *, deep: bool = False) -> Verdict:
    """Checks a checkpoint against itself.

    Args:
        deep: also read every byte, compare the checksums, and look at the values of quantized
            tensors: scales must be finite, codes in range.

    Raises:
        MissingFileError, PathError: there is no file to verify.
    """
    faults: list[AoserialError] = []
    unverified: list[str] = []
    try:
        with SafetensorsFile.open(path) as file:
            catalog = read_catalog(file)
            if not catalog.sealed:
                unverified.append("the header: the file has no digest of it")
            if not catalog.crcs:
                unverified.append("the data: the file has no checksums")
            prepared: list[Prepared] = []
            try:
                prepared = prepare(catalog, upgrader_for(None))
            except AoserialError as error:
                faults += _single(error)
            if deep:
                faults += check_checksums(file, catalog)
                faults += _check_values(file, prepared)
    except (MissingFileError, PathError):
        raise
    except AoserialError as error:
        faults += _single(error)
    for fault in faults:
        fault.locate(file=os.fspath(path))
    return Verdict(path=os.fspath(path), faults=tuple(faults), unverified=tuple(unverified))


def check_checksums(file: SafetensorsFile, catalog: Catalog) -> Iterator[IntegrityError]:
    """A fault for each tensor whose bytes do not have the CRC-32 that was written with them."""
    for key, expected in zip(file.header.entries, catalog.crcs, strict=bool(catalog.crcs)):
        found = 0
        for chunk in file.parts[key].chunks(CHUNK_BYTES):
            found = zlib.crc32(chunk, found)
        if found != expected:
            fault = IntegrityError(
                f"CRC-32 is {found:08x}, the file says {expected:08x}: its bytes were changed "
                f"after they were written"
            )
            yield fault.locate(name=key)


def _check_values(file: SafetensorsFile, prepared: list[Prepared]) -> Iterator[AoserialError]:
    """A fault for each part whose values its type does not allow."""
    known = [one for one in prepared if one.outcome is not None]
    if not known:
        return
    from aoserial.checkpoint.building import migrated_record  # these import torch
    from aoserial.tensors.values import value_faults

    for one in known:
        for name, keys in one.group.members.items():
            try:
                for fault in value_faults(migrated_record(file, one, keys)):
                    yield fault.locate(name=name)
            except AoserialError as error:  # a bool byte of 2, a migration that fails at the data
                yield error.locate(name=name)


def _single(error: AoserialError) -> list[AoserialError]:
    if isinstance(error, Faults):
        return [fault for fault in error.exceptions if isinstance(fault, AoserialError)]
    return [error]
