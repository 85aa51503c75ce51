"""Whether a checkpoint is what it says: `verify`.

Torch-free where only headers and checksums are looked at; `deep` imports it to look at values.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.errors import AoserialError, MissingFileError, PathError, each_of


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
        with open_archive(path) as file:
            catalog = file.catalog
            unverified += file.unverified
            prepared: list[Prepared] = []
            try:
                prepared = prepare(catalog, upgrader_for(None))
            except AoserialError as error:
                faults += each_of(error)
            if deep:
                faults += file.checksum_faults()
                faults += _check_values(file, prepared)
    except (MissingFileError, PathError):
        raise
    except AoserialError as error:
        faults += each_of(error)
    for fault in faults:
        fault.locate(file=os.fspath(path))
    return Verdict(path=os.fspath(path), faults=tuple(faults), unverified=tuple(unverified))


def _check_values(file: Archive, prepared: list[Prepared]) -> Iterator[AoserialError]:
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
