"""A whole checkpoint read into a state dict: `load`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.building import Progress, read_state
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.checkpoint.report import LoadReport
from aoserial.errors import (
    AoserialError,
    UnknownNameError,
    UnknownTypeError,
    UnsupportedOperationError,
    locating,
    raise_all,
)
from aoserial.record import Catalog
from aoserial.tensors import InertTensor, Loaded
from aoserial.tensors.assembling import collector_paused

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
) -> dict[str, Loaded]:
    """Reads a checkpoint into a plain dict, quantized tensors at the heads of their types.

    On the CPU tensors lie over the mapped file, privately: writing to them does not change it.

    Args:
        device: where the tensors go.
        names: the tensors to read; all if not given.
        strict: raise for tensors of unknown types; otherwise they come as `InertTensor`.
        verify: `structure` checks all that the header says; `checksums` also reads every byte and
            compares CRC-32s, where the file has them.
        into: whose classes to build.
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all.

    Raises:
        UnknownNameError: a name in `names` that the checkpoint does not have.
        UnknownTypeError: `strict`, and a type that nobody registered.
        AoserialError: whatever `open` raises.
    """
    upgrader = upgrader_for(assume)
    if into != "aoserial":
        raise UnsupportedOperationError(f"into={into!r} is not available; 'aoserial' is")
    if verify not in ("structure", "checksums"):
        raise UnsupportedOperationError(f"verify={verify!r} is not 'structure' or 'checksums'")
    with (
        collector_paused(),
        open_archive(path) as file,
        locating(file=os.fspath(path)),
    ):
        catalog = file.catalog
        prepared = prepare(catalog, upgrader)
        if verify == "checksums":
            raise_all("checksums do not match", list(file.checksum_faults()))
        if strict:
            _refuse_unknown(prepared)
        LoadReport.of(file, prepared).warn()
        wanted = _wanted(catalog, prepared, names)
        state = read_state(file, prepared, wanted, progress)
    if str(device) != "cpu":
        state = {
            name: tensor if isinstance(tensor, InertTensor) else tensor.to(device)
            for name, tensor in state.items()
        }
    return state


def _wanted(
    catalog: Catalog, prepared: list[Prepared], names: Iterable[str] | None
) -> dict[str, None] | None:
    if names is None:
        return None
    wanted = dict.fromkeys(names)
    present = {name for one in prepared for name in one.group.members}
    present |= catalog.plain.keys() | catalog.ties.keys()
    unknown = [
        UnknownNameError("the checkpoint has no such tensor").locate(name=name)
        for name in wanted
        if name not in present
    ]
    raise_all(f"{len(unknown)} names are not in the checkpoint", unknown)
    return wanted


def _refuse_unknown(prepared: list[Prepared]) -> None:
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
