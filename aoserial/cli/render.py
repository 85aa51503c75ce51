"""What the commands print. Whatever comes from a file is escaped and never taken for markup."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.table import Table
from rich.text import Text

from aoserial.checkpoint import MigrationPlan, Summary, Verdict
from aoserial.errors import escape

_WIDE = 160  # columns where no terminal says how many there are: a table is not to be wrapped

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def console() -> Console:
    """A console on stdout, made when it is used, since a test may have replaced the stream."""
    width = None if sys.stdout.isatty() else _WIDE
    return Console(highlight=False, markup=False, emoji=False, width=width)


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


def table(columns: Sequence[str], rows: Sequence[Sequence[object]], right: str = "") -> Table:
    """A table; the columns named in `right` (space separated) hold numbers."""
    made = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 2, 0, 0))
    for column in columns:
        made.add_column(column, justify="right" if column in right.split() else "left")
    for row in rows:
        made.add_row(*(Text(escape(str(cell))) for cell in row))
    return made


def summary(found: Summary) -> None:
    out = console()
    out.print(Text(escape(found.path), style="bold"))
    writer = escape(found.writer) or "not recorded"
    out.print(
        f"{found.format}, {size(found.file_bytes)}, metadata: {found.layout}, writer: {writer}"
    )
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
    out.print(table(columns, rows, right="version head tensors bytes bits/weight"))
    if found.ties:
        out.print(f"{found.ties} names share another's tensor")
    for step in found.trail:
        out.print(_trail_line(step))
    for row in found.types:
        if row.problem:
            out.print(f"{row.type}@{row.version}: {escape(row.problem)}")


def plan(found: MigrationPlan) -> None:
    out = console()
    rows = [
        (
            row.source,
            row.target,
            " → ".join(row.steps) or "-",
            row.count,
            size(row.bytes_copied),
            size(row.bytes_computed),
            "yes" if row.header_only else "no",
        )
        for row in found.rows
    ]
    columns = ("from", "to", "steps", "tensors", "copied", "computed", "header only")
    out.print(table(columns, rows, right="tensors copied computed"))
    out.print(f"{found.plain_count} plain tensors, {size(found.plain_bytes)}, are carried over")
    if found.inert:
        out.print(f"{len(found.inert)} tensors of unknown types are carried over as they are")
    for loss in found.lossy:
        out.print(f"lossy: {loss}")
    if not found.pending:
        out.print("nothing to migrate")


def migrated(done: MigrationPlan, path: str) -> None:
    count = sum(row.count for row in done.pending)
    console().print(f"{escape(path)}: {count} tensors migrated")


def verdict(found: Verdict, *, deep: bool) -> None:
    out = console()
    for fault in found.faults:
        out.print(f"fault: {escape(str(fault))}")
    for what in found.unverified:
        out.print(f"not verified: {what}")
    if found:
        every_byte = deep and not found.unverified
        checked = "header, records and every byte" if every_byte else "header and records"
        out.print(f"{escape(found.path)}: clean ({checked})")


def _trail_line(step: dict[str, object]) -> str:
    fields = {
        name: escape(str(step.get(name, "?"))) for name in ("step", "from", "to", "count", "by")
    }
    return "migrated {count}: {from} → {to} by {step}, {by}".format(**fields)


@contextmanager
def progress(verb: str) -> Iterator[Callable[[int, int], None] | None]:
    """A bar with bytes a second and time left on a terminal, nothing elsewhere."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (  # costs 30 ms, and pipes never need it
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(verb, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
