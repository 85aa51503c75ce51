"""What `aoserial history` prints."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from aoserial.checkpoint.history import FieldTold, History, StepTold, TypeTold, VersionTold
from aoserial.cli.render import say, table

_WIDTH = 100
_PATHS_SHOWN = 6


def types(found: Sequence[TypeTold]) -> None:
    rows = [
        (row.type, row.head, row.written or "-", textwrap.shorten(row.doc, 80, placeholder=" …"))
        for row in found
    ]
    table(("type", "version", "written by", "newest"), rows, right="version")


def history(found: History) -> None:
    say(found.type, bold=True)
    versions = "1 version" if len(found.versions) == 1 else f"{len(found.versions)} versions"
    say(f"{found.kind}, {versions}, declared by {found.owner}")
    if found.paths:
        more = len(found.paths) - _PATHS_SHOWN
        shown = [*found.paths[:_PATHS_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        _wrapped(f"pickled as {', '.join(shown)}")
    before: tuple[FieldTold, ...] = ()
    for version in found.versions:
        say()
        _version(version, before, newest=version.version == found.head)
        before = version.fields


def _version(told: VersionTold, before: tuple[FieldTold, ...], *, newest: bool) -> None:
    title = f"version {told.version}{' (newest)' if newest else ''}"
    say(f"{title}: {told.doc}" if told.doc else title, bold=True)
    for written in told.written:
        _wrapped(
            f"written by {written.era}, {written.container}: {'; '.join(written.era.evidence)}", 2
        )
    if not told.known:
        say("  its fields are not known: there is no frozen document of it")
    _fields(told.fields, before)
    if told.step:
        _step(told.step)


def _fields(fields: Sequence[FieldTold], before: Sequence[FieldTold]) -> None:
    """All fields of a first version; of a later one what it has anew, otherwise, or no more."""
    shown = [field for field in fields if field not in before]
    names = {field.name for field in fields}
    gone = [field.name for field in before if field.name not in names] if fields else []
    inside: dict[str, list[str]] = {}
    for field in shown:
        holder, _, name = field.name.partition(".")
        if name:
            inside.setdefault(holder, []).append(name)
    outside = [field for field in shown if "." not in field.name]
    width = max((len(field.name) for field in outside), default=0)
    for field in outside:
        optional = "" if field.required else ", optional"
        doc = f": {field.doc}" if field.doc else ""
        _wrapped(f"{field.name.ljust(width)}  {field.kind}{optional}{doc}", 4, hang=width + 2)
    for holder, held in inside.items():
        _wrapped(f"in {holder}, as it has them: {', '.join(held)}", 4)
    if gone := [name for name in gone if name.partition(".")[0] not in gone or "." not in name]:
        _wrapped(f"no more: {', '.join(gone)}", 4)
    if same := len(fields) - len(shown):
        say(f"    {same} more as before")


def _step(step: StepTold) -> None:
    targets = f"{step.targets[0]} and {len(step.targets) - 1} others"
    _wrapped(
        f"→ {step.name}, to {', '.join(step.targets) if len(step.targets) < 4 else targets}", 2
    )
    for paragraph in step.does:
        _wrapped(paragraph, 4)
    if step.repairs:
        _wrapped(f"repairs {step.repairs}", 4)
    if step.lossy:
        _wrapped(f"lossy: {step.lossy}", 4)
    for one in step.asks:
        usual = f", {one.default} if nobody says" if one.default else ""
        _wrapped(f"asks {one.name} ({' or '.join(one.answers)}{usual}): {one.why}", 4)


def _wrapped(text: str, indent: int = 0, *, hang: int = 2) -> None:
    first, rest = " " * indent, " " * (indent + hang)
    lines = textwrap.wrap(
        text,
        _WIDTH,
        initial_indent=first,
        subsequent_indent=rest,
        break_on_hyphens=False,
        break_long_words=False,
    )
    for line in lines:
        say(line)
