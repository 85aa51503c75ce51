"""A whole checkpoint read into a state dict: `load`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.building import read_state
from aoserial.checkpoint.contents import Prepared, become, prepare, upgrader_for
from aoserial.checkpoint.renaming import Rename, new_names
from aoserial.checkpoint.report import AoserialWarning, LoadReport
from aoserial.errors import (
    AoserialError,
    OptionError,
    UnknownNameError,
    UnknownTypeError,
    UnsupportedOperationError,
    locating,
    raise_all,
)
from aoserial.record import Catalog, Record
from aoserial.storage.collecting import collector_paused
from aoserial.storage.progress import Progress, Tally
from aoserial.tensors import Loaded
from aoserial.tensors.convert import Build, builder
from aoserial.torchao.installed import Installed

if TYPE_CHECKING:
    import torch


def load(
    path: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    *,
    names: Iterable[str] | None = None,
    strict: bool = True,
    verify: Literal["structure", "checksums"] = "structure",
    into: Literal["aoserial", "torchao"] = "aoserial",
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    rename: Rename | None = None,
) -> dict[str, Loaded]:
    """Reads a checkpoint into a plain dict, quantized tensors at the heads of their types.

    On the CPU tensors lie over the mapped file, privately: writing to them does not change it.

    Args:
        device: where the tensors go.
        names: the tensors to read; all if not given.
        strict: raise for tensors of unknown types; otherwise they come as `InertTensor`.
        verify: `structure` checks all that the header says; `checksums` also reads every byte and
            compares CRC-32s, where the file has them.
        into: whose classes to build. `torchao` makes those of the installed torchao (0.16 or later,
            imported only then), with values and settings as they are; its own arithmetic is its
            own: NVFP4 is the one type whose values differ by release, of which a warning tells.
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all; where `verify` reads every byte
            first, each counts as often as it is read.
        rename: the names in the result: a map of exact names, which leaves others as they are, or
            a function of a name. `names` are those of the file.

    Raises:
        CollisionError: `rename` gives two tensors one name; it lists all, before anything is read.
        UnknownNameError: a name in `names` or `rename` that the checkpoint does not have.
        UnknownTypeError: `strict`, and a type that nobody registered.
        UnsupportedOperationError: `into` torchao, and it is not installed, or too old.
        UnsupportedTensorError: tensors that torchao has no class for; `Faults` lists them all.
        AoserialError: whatever `open` raises.
    """
    upgrader = upgrader_for(assume)
    if into not in ("aoserial", "torchao"):
        raise OptionError(f"into={into!r:.60} is not 'aoserial' or 'torchao'")
    if verify not in ("structure", "checksums"):
        raise UnsupportedOperationError(f"verify={verify!r} is not 'structure' or 'checksums'")
    with (
        collector_paused(),
        open_archive(path) as file,
        locating(file=os.fspath(path)),
    ):
        catalog = file.catalog
        prepared = prepare(catalog, upgrader)
        passes = 1 + (file.checksum_passes if verify == "checksums" else 0)
        sizes = {name: passes * nbytes for name, nbytes in file.shard_sizes.items()}
        tally = Tally(progress, passes * file.nbytes, sizes)
        if verify == "checksums":
            raise_all("checksums do not match", list(file.checksum_faults(tally)))
            tally.reach((passes - 1) * file.nbytes)
        if strict:
            refuse_unknown(prepared)
        LoadReport.of(file, prepared).warn()
        present = _present(catalog, prepared)
        wanted = _wanted(present, names)
        renamed = new_names(present, present if wanted is None else wanted, rename)
        make: Callable[[Record], Build] = builder
        if into == "torchao":
            installed = Installed()
            prepared = _into(installed, _holding(prepared, catalog, wanted))
            make = installed.builder
        state = read_state(file, prepared, wanted, tally, make=make, device=device)
        if rename is not None:
            state = {renamed[name]: tensor for name, tensor in state.items()}
    return state


def _present(catalog: Catalog, prepared: list[Prepared]) -> dict[str, None]:
    names = dict.fromkeys(name for one in prepared for name in one.group.members)
    return names | dict.fromkeys([*catalog.plain, *catalog.ties])


def _wanted(present: Mapping[str, None], names: Iterable[str] | None) -> dict[str, None] | None:
    if names is None:
        return None
    wanted = dict.fromkeys(names)
    unknown = [
        UnknownNameError("the checkpoint has no such tensor").locate(name=name)
        for name in wanted
        if name not in present
    ]
    raise_all(f"{len(unknown)} names are not in the checkpoint", unknown)
    return wanted


def _holding(
    prepared: list[Prepared], catalog: Catalog, wanted: Collection[str] | None
) -> list[Prepared]:
    """The groups that hold something of what is wanted."""
    if wanted is None:
        return prepared
    homes = {catalog.ties.get(name, name) for name in wanted}
    return [one for one in prepared if not homes.isdisjoint(one.group.members)]


def _into(installed: Installed, prepared: list[Prepared]) -> list[Prepared]:
    """Groups as what torchao's constructors take; warns of arithmetic that is not the record's."""
    faults: list[AoserialError] = []
    theirs = become(prepared, installed.counterpart, faults)
    raise_all(f"torchao has no counterpart for {len(faults)} kinds of tensors", faults)
    for note in installed.notes:
        warnings.warn(note, AoserialWarning, stacklevel=3)
    return theirs


def refuse_unknown(prepared: list[Prepared]) -> None:
    """Raises `UnknownTypeError` for tensors that would be inert; `Faults` for several."""
    unknown: list[AoserialError] = []
    for one in prepared:
        if one.outcome is None:
            kind = one.group.template.type
            reason = one.reason or (
                f"no type {kind!r} is registered; import the package that defines it"
            )
            unknown += [
                UnknownTypeError(
                    f"{reason}; load with strict=False to get it inert", type=kind
                ).locate(name=name)
                for name in one.group.members
            ]
    raise_all(f"{len(unknown)} tensors are of unknown types, or unreadable", unknown)
