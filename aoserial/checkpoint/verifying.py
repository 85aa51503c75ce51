"""Whether a checkpoint is what it says: `verify`.

Torch-free where only headers and checksums are looked at; `deep` imports it to look at values.
No fault hides another: whatever can be checked without the broken part is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.contents import (
    Prepared,
    prepare_sound,
    spell_members,
    upgrader_for,
)
from aoserial.errors import AoserialError, PathError, each_of
from aoserial.record import Catalog
from aoserial.storage.progress import Progress, Tally


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


def verify(
    path: str | os.PathLike[str],
    *,
    deep: bool = False,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Checks a checkpoint against itself.

    Args:
        deep: also read every byte, compare the checksums, and look at the values of quantized
            tensors: scales must be finite and without a sign, codes and indices in range.
        assume: answers to what the file cannot tell; a tensor that needs one is a fault without.
        progress: called with bytes done and bytes in all, where `deep` reads them; each
            counts as often as it is read: for its checksums, and for its value.

    Raises:
        MissingFileError, PathError: there is no file to verify.
        OptionError: an answer in `assume` that is none.
    """
    upgrader = upgrader_for(assume)
    faults: list[AoserialError] = []
    unverified: list[str] = []
    try:
        with open_archive(path) as file:
            catalog = file.survey(faults)
            unverified += file.unverified
            prepared: list[Prepared] = []
            if catalog is not None:
                prepared = prepare_sound(catalog, upgrader, faults)
            if deep:
                passes = file.checksum_passes
                sizes = {name: passes * nbytes for name, nbytes in file.shard_sizes.items()}
                tally = Tally(progress, passes * file.nbytes + _nbytes(prepared), sizes)
                faults += file.checksum_faults(tally)
                tally.reach(passes * file.nbytes)
                if catalog is not None:
                    faults += _check_values(file, prepared, tally)
                    faults += _check_bools(file, catalog, prepared)
                tally.end()
    except AoserialError as error:
        if isinstance(error, PathError) and error.location.shard is None:
            raise  # there is nothing to verify; of a shard that lacks, there is
        faults += each_of(error)
    for fault in faults:
        fault.locate(file=os.fspath(path))
    return Verdict(path=os.fspath(path), faults=tuple(faults), unverified=tuple(unverified))


def _nbytes(prepared: list[Prepared]) -> int:
    """Bytes of the parts whose values are looked at."""
    groups = [one.group for one in prepared if one.outcome is not None]
    return sum(len(group.members) * group.template.nbytes for group in groups)


def _check_values(file: Archive, prepared: list[Prepared], tally: Tally) -> Iterator[AoserialError]:
    """A fault for each part whose values its type does not allow."""
    known = [one for one in prepared if one.outcome is not None]
    if not known:
        return
    from aoserial.checkpoint.building import migrated_record  # these import torch
    from aoserial.tensors.values import attribute_faults, value_faults

    for one in known:
        assert one.outcome is not None
        for fault in attribute_faults(one.outcome.record):
            yield fault.locate(name=spell_members(one.group))
        for name, keys in one.group.members.items():
            # a bool byte of 2 and a migration that fails at the data are among them
            for fault in value_faults(migrated_record(file, one, keys)):
                yield fault.locate(name=name)
            tally.add(one.group.template.nbytes)


def _check_bools(
    file: Archive, catalog: Catalog, prepared: list[Prepared]
) -> Iterator[AoserialError]:
    """A fault for each truth value that is neither 0 nor 1, of tensors with no rules of their own.

    Those are the plain ones, and parts of inert ones.
    """
    inert = [one.group.members for one in prepared if one.outcome is None]
    keys = [*catalog.plain.values(), *(key for group in inert for k in group.values() for key in k)]
    for key in keys:
        if file.parts[key].dtype == "bool":
            try:
                file.parts[key].read()
            except AoserialError as error:
                yield error.locate(name=key)
