"""What a migration would do, before it does it: `plan`. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.companions import config_notes
from aoserial.checkpoint.contents import Prepared, head_of, prepare, upgrader_for
from aoserial.errors import MigrationError, locating
from aoserial.migrations import is_header_only, spell
from aoserial.migrations.step import Version
from aoserial.storage import ComputedPart, Part, ViewPart


@dataclass(frozen=True, kw_only=True, slots=True)
class PlanRow:
    """Tensors that go the same way.

    Attributes:
        source, target: type and version before and after; equal when nothing is to be done.
        steps: the names of the steps between them.
        count: of tensors.
        bytes_copied: of parts written as they are (or under another dtype or shape).
        bytes_computed: of parts that are made from others.
        header_only: no byte of data would move.
        lossy: what is lost, a line a step.
    """

    source: str
    target: str
    steps: tuple[str, ...]
    count: int
    bytes_copied: int
    bytes_computed: int
    header_only: bool
    lossy: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class MigrationPlan:
    """What `migrate` would do to a file.

    Attributes:
        path: of the file.
        rows: by type and route.
        inert: names of tensors of unknown types, which are carried as they are.
        plain_count, plain_bytes: of plain tensors, which are carried as they are.
        bytes_before: of the file.
        bytes_after: of the new one, about: its data to the byte, a header as long as the old one,
            or as its names need where a pickle has none.
        notes: what beside the tensors has to be looked after, a sentence each.
    """

    path: str
    rows: tuple[PlanRow, ...]
    inert: tuple[str, ...]
    plain_count: int
    plain_bytes: int
    bytes_before: int
    bytes_after: int
    notes: tuple[str, ...] = ()

    @property
    def pending(self) -> tuple[PlanRow, ...]:
        """The rows that have steps to run."""
        return tuple(row for row in self.rows if row.steps)

    @property
    def header_only(self) -> bool:
        """Whether only the header of the file would change."""
        return all(row.header_only for row in self.rows)

    @property
    def lossy(self) -> tuple[str, ...]:
        return tuple(loss for row in self.rows for loss in row.lossy)


def plan(
    path: str | os.PathLike[str],
    *,
    to: str | None = None,
    assume: Mapping[str, str] | None = None,
) -> MigrationPlan:
    """What `migrate` would do to the checkpoint at `path`; reads its header only.

    Args:
        to: `TYPE@VERSION` to stop at; the heads if not given.
        assume: answers to what a file cannot tell.

    Raises:
        AoserialError: a checkpoint that cannot be read or migrated; `Faults` for several reasons.
    """
    upgrader = upgrader_for(assume)
    with open_archive(path) as file, locating(file=os.fspath(path)):
        return plan_of(file, prepare(file.catalog, upgrader, stop=parse_version(to)))


def plan_of(file: Archive, prepared: list[Prepared]) -> MigrationPlan:
    """The plan for an opened file whose groups were prepared."""
    plain = [file.parts[key] for key in file.catalog.plain.values()]
    changing = any(one.outcome and one.outcome.steps for one in prepared)
    return MigrationPlan(
        path=file.path,
        rows=_rows(prepared),
        inert=tuple(name for one in prepared if one.outcome is None for name in one.group.members),
        plain_count=len(plain),
        plain_bytes=sum(part.nbytes for part in plain),
        bytes_before=file.nbytes,
        bytes_after=_bytes_after(file, prepared, sum(part.nbytes for part in plain)),
        notes=tuple(config_notes(os.path.dirname(file.path) or ".")) if changing else (),
    )


def _bytes_after(file: Archive, prepared: list[Prepared], plain_bytes: int) -> int:
    records = [(head_of(one), len(one.group.members)) for one in prepared]
    data = plain_bytes + sum(record.nbytes * count for record, count in records)
    parts = len(file.catalog.plain) + sum(len(record.parts) * count for record, count in records)
    # two offsets, a dtype and a shape as text take that beside the name
    header = file.header_bytes if file.tree is None else 200 * parts
    return data + header


def parse_version(text: str | None) -> Version | None:
    """`("acme.Int4Tensor", 2)` of `acme.Int4Tensor@2`."""
    if text is None:
        return None
    kind, at, version = text.rpartition("@")
    if not at or not version.isdecimal() or not version.isascii():
        raise MigrationError(f"{text!r:.100} is not TYPE@VERSION, as acme.Int4Tensor@2")
    return kind, int(version)


def _rows(prepared: list[Prepared]) -> tuple[PlanRow, ...]:
    rows: dict[tuple[object, ...], PlanRow] = {}
    for one in prepared:
        if one.outcome is None:
            continue
        before, after = one.group.template, one.outcome.record
        count = len(one.group.members)
        computed = sum(part.nbytes for part in after.parts.values() if _is_computed(part))
        steps = tuple(step.name for step in one.outcome.steps)
        header_only = is_header_only(before, after)
        key = (before.type, before.version, after.type, after.version, steps, header_only)
        so_far = rows.get(key)
        rows[key] = PlanRow(
            source=spell((before.type, before.version)),
            target=spell((after.type, after.version)),
            steps=steps,
            count=count + (so_far.count if so_far else 0),
            bytes_copied=count * (after.nbytes - computed) + (so_far.bytes_copied if so_far else 0),
            bytes_computed=count * computed + (so_far.bytes_computed if so_far else 0),
            header_only=header_only,
            lossy=tuple(f"{step.name}: {step.lossy}" for step in one.outcome.lossy),
        )
    return tuple(rows.values())


def _is_computed(part: Part) -> bool:
    return isinstance(part.base if isinstance(part, ViewPart) else part, ComputedPart)
