"""A file rewritten at the heads of its types: `migrate`."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.building import migrated_record
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.checkpoint.planning import MigrationPlan, parse_version, plan_of
from aoserial.checkpoint.saving import write_contents
from aoserial.errors import LossyMigrationError, MigrationError, UnsupportedOperationError, locating
from aoserial.migrations import Step, spell
from aoserial.migrations.step import Version
from aoserial.record import Catalog
from aoserial.record.envelope import WRITER, Contents, Stored


def migrate(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    in_place: bool = False,
    resume: bool = False,
    allow_lossy: bool = False,
    assume: Mapping[str, str] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> MigrationPlan:
    """Writes the checkpoint at `src` to `dst` with its records at the heads of their types.

    Parts stream from one file to the other: at most two are in memory. `src` is never changed
    unless `in_place`, and then the new file replaces it whole, by rename. A file that has nothing
    to migrate comes out with equal bytes.

    Args:
        dst: the file to write; may be left out with `in_place`.
        to: `TYPE@VERSION` to stop at.
        allow_lossy: let steps run that lose something.
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all.

    Returns:
        The plan that was carried out.

    Raises:
        LossyMigrationError: a step would lose something, and `allow_lossy` was not said.
        AoserialError: whatever `plan` and `save` raise.
    """
    upgrader = upgrader_for(assume)
    if resume:
        raise UnsupportedOperationError("resume is not available: one file is written at once")
    if (dst is None) != in_place:
        raise MigrationError("say either where to write, or that the file is to be replaced")
    with open_archive(src) as file, locating(file=os.fspath(src)):
        prepared = prepare(file.catalog, upgrader, stop=parse_version(to))
        todo = plan_of(file, prepared)
        if todo.lossy and not allow_lossy:
            raise LossyMigrationError(
                f"{'; '.join(todo.lossy)}. Say allow_lossy to run it all the same"
            )
        if not in_place or todo.pending:
            contents = _contents(file, prepared)
            write_contents(contents, src if dst is None else dst, progress=progress)
    return todo


def _contents(file: Archive, prepared: list[Prepared]) -> Contents:
    catalog = file.catalog
    return Contents(
        records={
            name: Stored(
                record=migrated_record(file, one, keys),
                fingerprint=one.group.fingerprint if one.outcome is None else None,
            )
            for one in prepared
            for name, keys in one.group.members.items()
        },
        plain={name: file.parts[key] for name, key in catalog.plain.items()},
        ties=catalog.ties,
        trail=extend_trail(catalog, prepared),
        metadata=catalog.metadata,
        extra=catalog.extra,
    )


def extend_trail(catalog: Catalog, prepared: list[Prepared]) -> list[dict[str, Any]]:
    """The file's trail with one entry for each step of this run."""
    counts: Counter[tuple[Step, Version]] = Counter()
    for one in prepared:
        if one.outcome is None:
            continue
        ends = [step.source for step in one.outcome.steps[1:]]
        ends.append((one.outcome.record.type, one.outcome.record.version))
        for step, end in zip(one.outcome.steps, ends, strict=False):
            counts[step, end] += len(one.group.members)
    trail = list(catalog.trail)
    for (step, end), count in counts.items():
        entry: dict[str, Any] = {
            "step": step.name,
            "from": spell(step.source),
            "to": spell(end),
            "count": count,
            "by": WRITER,
        }
        trail.append(entry | ({"lossy": step.lossy} if step.lossy else {}))
    return trail
