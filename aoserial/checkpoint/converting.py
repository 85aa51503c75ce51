"""A checkpoint of any format we read, written in another: `convert`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.archives.pickles import SET_ON_TENSOR
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.checkpoint.formats import WRITERS, Target, Work
from aoserial.checkpoint.report import LoadReport
from aoserial.checkpoint.rewriting import format_for
from aoserial.checkpoint.splitting import target_of
from aoserial.errors import (
    LossyMigrationError,
    OptionError,
    PathError,
    locating,
)
from aoserial.record import Record
from aoserial.storage.pickle import StateDict, is_tensor
from aoserial.storage.progress import Progress
from aoserial.storage.shards import Resume

_SHOWN = 3  # names in a note of what was left out


@dataclass(frozen=True, kw_only=True)
class Conversion:
    """What was written.

    Attributes:
        path: of the new file.
        to: what it was converted to.
        quantized, plain, inert: counts of tensors, as they were in the source.
        ties: count of names that share another's tensor.
        notes: what the new file has no place for, and what had to be assumed, a sentence each.
    """

    path: str
    to: Target
    quantized: int
    plain: int
    inert: int
    ties: int
    notes: tuple[str, ...]


def convert(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str],
    *,
    to: Target | None = None,
    resume: bool = False,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Conversion:
    """Writes what the checkpoint at `src` holds to `dst`, in another format.

    Parts stream from one file to the other, and what has to be computed is computed a tensor at a
    time. `src` is never changed, and `dst` is written whole or not at all.

    Args:
        to: `safetensors` or `pt`, a `torch.save` archive, with tensors of our types at their heads
            and inert ones as they are; `torchao`, a safetensors file that torchao 0.18 reads; or
            `plain`, ordinary tensors of what the quantized ones stand for, in the format that
            the name of `dst` calls for. That name decides, as it does in `save`, unless given.
        resume: go on with a set of shards that was begun and not ended, as `migrate` does.
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all.

    Raises:
        OptionError: `to` is none of these.
        PathError: `dst` is `src`.
        LossyMigrationError: a step on the way to our types loses something; `migrate` runs it.
        UnknownTypeError: `plain`, and tensors that are inert; it lists all of them.
        UnsupportedTensorError: what the new format has no place for; `Faults` for several.
        AoserialError: whatever `open` and `save` raise.
    """
    target: Target = format_for(dst) if to is None else to
    if target not in get_args(Target):
        choices = ", ".join(get_args(Target))
        raise OptionError(f"to={target!r:.60} is none of {choices}")
    if target == "torchao" and format_for(dst) == "pt":
        raise OptionError("torchao's layout is one of safetensors files; name DST *.safetensors")
    upgrader = upgrader_for(assume)
    with open_archive(src) as file, locating(file=os.fspath(src)):
        if _is_source(file, dst):
            raise PathError("DST is the source itself, which converting leaves as it is")
        prepared = prepare(file.catalog, upgrader)
        if target != "plain":
            _refuse_lossy(prepared)
        resumed = Resume(origin=f"{target} {sorted((assume or {}).items())}", go_on=resume)
        WRITERS[target](
            Work(file=file, prepared=prepared, dst=dst, progress=progress, resume=resumed)
        )
        return _conversion(file, prepared, dst, target)


# -- what is refused, and what is told ----------------------------------------------------------


def _refuse_lossy(prepared: Sequence[Prepared]) -> None:
    lossy = {str(step): step.lossy for one in prepared if one.outcome for step in one.outcome.lossy}
    if lossy:
        told = "; ".join(f"{name}: {loss}" for name, loss in lossy.items())
        raise LossyMigrationError(
            f"{told}. Migrate it first with --allow-lossy (allow_lossy=True), or convert to plain"
        )


def _conversion(
    file: Archive, prepared: list[Prepared], dst: str | os.PathLike[str], to: Target
) -> Conversion:
    catalog = file.catalog
    inert = sum(len(one.group.members) for one in prepared if one.outcome is None)
    quantized = sum(len(one.group.members) for one in prepared) - inert
    archive = to == "pt" or (to == "plain" and format_for(dst) == "pt")
    return Conversion(
        path=os.fspath(dst),
        to=to,
        quantized=quantized,
        plain=len(catalog.plain),
        inert=inert,
        ties=len(catalog.ties),
        notes=tuple(_notes(file, prepared, to, archive=archive)),
    )


def _notes(file: Archive, prepared: list[Prepared], to: Target, *, archive: bool) -> Iterator[str]:
    catalog, report = file.catalog, LoadReport.of(file, prepared)
    for answer, count in report.assumed.items():
        yield f"assumed {answer} for {count} tensors; --assume says otherwise"
    if to == "plain":
        lost = {step for one in prepared if one.outcome for step in one.outcome.lossy}
        yield from sorted(f"lossy: {step}: {step.lossy}" for step in lost)
    yield from (note for note in file.notes if not archive or not note.endswith(SET_ON_TENSOR))
    if archive:
        kept = {key: text for key, text in catalog.metadata.items() if key != "format"}
        if kept or catalog.trail:
            yield "a torch.save archive has no place for the metadata and trail of the source"
        return
    if left := list(_no_tensors(file.tree)):
        more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
        shown = ", ".join(left[:_SHOWN])
        yield f"a safetensors file has no place for what is no tensor: {shown}{more}"
    if to != "torchao":
        return
    narrow = [one for one in prepared if one.outcome and _is_narrow(one.outcome.record)]
    if count := sum(len(one.group.members) for one in narrow):
        yield (
            f"torchao computes int4 weights by kernels in float32, so {count} tensors may come out "
            f"otherwise in the last bit"
        )
    if catalog.ties:
        yield f"torchao's layout has no ties: {len(catalog.ties)} tensors were written once more"


def _is_source(file: Archive, dst: str | os.PathLike[str]) -> bool:
    """Whether writing to `dst` would replace the source, or the set that it belongs to."""
    target = target_of(dst, None)
    if target is None:
        return os.path.exists(dst) and os.path.samefile(file.path, dst)
    folder, name = os.path.split(file.path)
    here = os.path.exists(target.folder) and os.path.samefile(folder or ".", target.folder)
    return here and name.startswith(target.stem)


def _is_narrow(record: Record) -> bool:
    return record.attributes.get("narrow_arithmetic") is True


def _no_tensors(root: object) -> Iterator[str]:
    """The dotted names of what a pickle's dicts and lists hold beside tensors."""
    waiting: list[tuple[str, object]] = [("", root)]
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop()
        if is_tensor(value) or (name == "" and value is None):
            continue
        pairs: list[tuple[object, object]] | None = None
        if isinstance(value, dict | StateDict):
            pairs = list(value.items())
        elif isinstance(value, list | tuple):
            pairs = list(enumerate(value))
        if pairs is None:
            yield name
        elif id(value) not in seen:
            seen.add(id(value))
            prefix = f"{name}." if name else ""
            waiting += [(f"{prefix}{key}", item) for key, item in reversed(pairs)]
