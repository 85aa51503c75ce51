"""What `aoserial schema` prints: reports of the gate in three formats, lists, documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from aoserial.cli.render import say
from aoserial.errors import UnknownTypeError
from aoserial.gate.frozen import files_in, read_frozen
from aoserial.schema import to_document
from aoserial.schema.document import to_text

if TYPE_CHECKING:
    from aoserial.gate import Code, Finding, Report

_BROKEN = {"read": "old files under this code", "write": "new files under the old code"}


def rows(code: Code) -> list[dict[str, Any]]:
    """A row for every type and enum: its kind, newest version, and which have documents."""
    frozen = read_frozen({} if code.folder is None else files_in(code.folder), "")
    found: list[dict[str, Any]] = []
    for name in code.types:
        head = code.head(name)
        versions = ", ".join(map(str, sorted(frozen.schemas.get(name, {})))) or "-"
        found.append({"type": name, "kind": head.kind, "head": head.version, "frozen": versions})
    for name in code.enums:
        known = "yes" if name in frozen.enums else "-"
        found.append({"type": name, "kind": "enum", "head": "-", "frozen": known})
    return found


def document(code: Code, name: str, version: int | None) -> str:
    """The document of a version, or of what the code declares now.

    Raises:
        UnknownTypeError: there is no such version.
    """
    if name in code.registry.enums:
        return to_text(to_document(code.registry.enums[name]))
    kind = code.registry.types[name]
    older = {one.version: one for one in (*kind.older, kind.head)}
    if code.folder is not None:
        older = read_frozen(files_in(code.folder), "").schemas.get(name, {}) | older
    schema = kind.head if version is None else older.get(version)
    if schema is None:
        raise UnknownTypeError(f"{name} has no version {version}", type=name)
    return to_text(to_document(schema))


def _text(report: Report) -> None:
    for one in report.findings:
        say(str(one))
        for line in _details(one):
            say(f"    {line}")
    for what in report.unchecked:
        say(f"not checked: {what}")
    count = len(report.findings)
    verdict = f"{count} finding{'s' if count > 1 else ''}" if count else "clean"
    say(f"{report.checked} documents: {verdict}", bold=True)


def _details(one: Finding) -> list[str]:
    lines = []
    if one.row.breaks:
        needs = "; needs a new version" if one.row.bump == "version" else ""
        lines.append(f"breaks {' and '.join(_BROKEN[way] for way in one.row.breaks)}{needs}")
    lines.append(f"fix: {one.row.fix}")
    if one.witness is not None:
        lines.append(f"witness: {json.dumps(one.witness.record)}")
        lines.append(f"  read by {_BROKEN[one.witness.direction].partition('under ')[2]}: "
                     f"{one.witness.outcome}")  # fmt: skip
    return lines


def _json(report: Report) -> None:
    plain = {
        "findings": [
            asdict(one) | {"breaks": list(one.row.breaks), "bump": one.row.bump, "fix": one.row.fix}
            for one in report.findings
        ],
        "checked": report.checked,
        "unchecked": report.unchecked,
    }
    click.echo(json.dumps(plain, indent=2))


def _github(report: Report) -> None:
    """Workflow commands: an annotation a finding, at its document."""
    for one in report.findings:
        where = f"file={_property(one.path)}," if one.path else ""
        text = _data("\n".join([str(one), *_details(one)]))
        click.echo(f"::error {where}title={_property(one.rule)}::{text}")
    for what in report.unchecked:
        click.echo(f"::notice title=not checked::{_data(what)}")


def _data(text: str) -> str:
    """As GitHub's runner takes it apart (actions/toolkit, command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


FORMATS: dict[str, Callable[[Report], None]] = {"text": _text, "json": _json, "github": _github}
