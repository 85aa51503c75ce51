"""What the commands print. Whatever comes from a file is escaped.

Tables are set here in a few lines, since a library for them costs half of what `aoserial inspect`
may take as a whole; progress bars, which only long work needs, are rich's: see `progress`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from aoserial.checkpoint import MigrationPlan, Summary, Verdict
from aoserial.errors import escape

if TYPE_CHECKING:
    from aoserial.checkpoint.converting import Conversion
    from aoserial.checkpoint.explaining import KernelRow

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def say(text: object = "", *, bold: bool = False) -> None:
    """Prints a line, escaped; bold on a terminal if asked."""
    click.secho(escape(str(text)), bold=bold or None)


def say_aside(text: str) -> None:
    """Prints a line to stderr, escaped."""
    sys.stderr.write(f"aoserial: {escape(text)}\n")
    sys.stderr.flush()


def error(message: str) -> None:
    lines = message.splitlines() or [""]
    sys.stderr.write("\n".join(["aoserial: " + escape(lines[0]), *map(escape, lines[1:])]) + "\n")


def size(count: int) -> str:
    """`1.5 MiB`."""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount /= 1024
        unit += 1
    return f"{amount:.1f} {_UNITS[unit]}" if unit else f"{count} B"


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> None:
    """Prints a table; the columns named in `right` (space separated) hold numbers."""
    cells = [[escape(str(cell)) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    numeric = [column in right.split() for column in columns]
    for number, row in enumerate([list(columns), *cells]):
        set_row = [
            cell.rjust(width) if is_number else cell.ljust(width)
            for cell, width, is_number in zip(row, widths, numeric, strict=True)
        ]
        say("  ".join(set_row).rstrip(), bold=number == 0)


def summary(found: Summary) -> None:
    say(found.path, bold=True)
    told = f"{found.era}, by its fields" if found.era else "not recorded"
    writer = found.writer or told
    say(f"{found.format}, {size(found.file_bytes)}, metadata: {found.layout}, writer: {writer}")
    rows = [
        (
            row.type,
            "-" if row.version is None else row.version,
            "-" if row.version is None else row.head or "unknown",
            row.count,
            size(row.nbytes),
            f"{row.bits_per_weight:.2f}",
            row.becomes or ("does not load" if row.problem else "-"),
        )
        for row in found.types
    ]
    columns = ("type", "version", "head", "tensors", "bytes", "bits/weight", "loads as")
    table(columns, rows, right="version head tensors bytes bits/weight")
    if found.ties:
        say(f"{found.ties} names share another's tensor")
    for step in found.trail:
        say(_trail_line(step))
    for row in found.types:
        if row.era:
            say(f"{row.era}: {row.type}@{row.version} {'; '.join(row.era.evidence)}")
        if row.problem:
            say(f"{row.type}@{row.version}: {row.problem}")


def kernels(rows: Sequence[KernelRow]) -> None:
    for row in rows:
        first, *others = row.names
        more = f" and {len(others)} more" if others else ""
        runs_on = row.backend or "no kernel"
        say(f"{first}{more}: {row.type} {list(row.shape)} runs on {runs_on}", bold=True)
        for backend, refusal in row.answers.items():
            say(f"  {backend}: {refusal or 'takes it'}")
        if not row.answers:
            say("  the type shows no weight to kernels; F.linear dequantizes it")
    if not rows:
        say("no quantized weights")


def plan(found: MigrationPlan) -> None:
    rows = [
        (
            row.source,
            row.target,
            " → ".join(row.steps) or "-",
            row.count,
            size(row.bytes_copied),
            size(row.bytes_computed),
            "yes" if row.header_only else "no",
            "no" if row.lossy else "yes",
        )
        for row in found.rows
    ]
    columns = ("from", "to", "steps", "tensors", "copied", "computed", "header only", "lossless")
    table(columns, rows, right="tensors copied computed")
    say(f"{found.plain_count} plain tensors, {size(found.plain_bytes)}, are carried over")
    if found.inert:
        say(f"{len(found.inert)} tensors of unknown types are carried over as they are")
    for loss in found.lossy:
        say(f"lossy: {loss}")
    _notes(found)
    if not found.pending:
        say("nothing to migrate")


def room(found: MigrationPlan, folder: str, free: int | None) -> None:
    told = "nobody says how many" if free is None else size(free)
    before, after = size(found.bytes_before), size(found.bytes_after)
    say(f"{before} now, about {after} afterwards, of {told} free in {folder}")
    if free is not None and found.bytes_after > free:
        say("there is no room for that: it would be refused", bold=True)


def migrated(done: MigrationPlan, path: str) -> None:
    count = sum(row.count for row in done.pending)
    say(f"{path}: {count} tensors migrated")
    _notes(done)


def _notes(found: MigrationPlan | Conversion) -> None:
    for note in found.notes:
        say(f"note: {note}")


def converted(done: Conversion) -> None:
    counts = f"{done.quantized} quantized tensors, {done.plain} plain"
    inert = f", {done.inert} inert" if done.inert else ""
    say(f"{done.path}: {counts}{inert}, converted to {done.to}")
    _notes(done)


def verdict(found: Verdict, *, deep: bool) -> None:
    for fault in found.faults:
        say(f"fault: {fault}")
    for what in found.unverified:
        say(f"not verified: {what}")
    if found:
        every_byte = deep and not found.unverified
        checked = "header, records and every byte" if every_byte else "header and records"
        say(f"{found.path}: clean ({checked})")


def _trail_line(step: dict[str, object]) -> str:
    fields = {name: step.get(name, "?") for name in ("step", "from", "to", "count", "by")}
    return "migrated {count}: {from} → {to} by {step}, {by}".format(**fields)
