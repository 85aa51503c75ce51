"""`aoserial schema`: list, show, freeze, draft, check."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from aoserial.cli import render
from aoserial.errors import OptionError, UnknownTypeError, raise_all

if TYPE_CHECKING:
    from aoserial.gate import Code, Goldens, Mode
    from aoserial.migrations.step import Version

CLEAN, FINDINGS, ERROR = 0, 1, 2


def _where(function: Callable[..., Any]) -> Callable[..., Any]:
    """The options that say whose types are meant."""
    for option in (
        click.option(
            "--schemas",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="The folder of documents, in place of the one the registrations name.",
        ),
        click.option("--entry-points", is_flag=True, help="Also the types of installed packages."),
        click.option(
            "--module",
            "modules",
            multiple=True,
            metavar="MODULE",
            help="A module that registers types, as acme.tensors; may be given several times.",
        ),
    ):
        function = option(function)
    return function


def _codes(modules: Sequence[str], entry_points: bool, schemas: Path | None) -> list[Code]:
    """Raises what kept a module from being imported."""
    from aoserial.gate import (
        code_of,
        our_code,
    )  # imports all declarations, and only schema needs it

    if not modules and not entry_points:
        return [our_code() if schemas is None else _elsewhere(our_code(), schemas)]
    codes, faults = code_of(modules, entry_points=entry_points, schemas=schemas)
    raise_all("modules could not be imported", [OptionError(str(fault)) for fault in faults])
    return codes


def _elsewhere(code: Code, schemas: Path) -> Code:
    from dataclasses import replace

    return replace(code, folder=schemas)


def _spell(path: Path | None) -> str:
    """A path as people would write it here."""
    here = Path.cwd()
    return str(path.relative_to(here) if path and path.is_relative_to(here) else path)


def _owning(codes: Sequence[Code], name: str) -> Code:
    """The code that declares a type or an enum."""
    for code in codes:
        if name in code.types or name in code.enums:
            return code
    raise UnknownTypeError(f"no type or enum {name!r} is declared there", type=name)


@click.group("schema")
def schema() -> None:
    """What types look like in a file, frozen; and whether the code still agrees."""


@schema.command("list")
@_where
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def list_command(
    modules: tuple[str, ...], entry_points: bool, schemas: Path | None, as_json: bool
) -> int:
    """Lists types and enums, their newest versions and those with documents."""
    from aoserial.cli import findings

    rows = [row for code in _codes(modules, entry_points, schemas) for row in findings.rows(code)]
    if as_json:
        click.echo(json.dumps(rows, indent=2))
    else:
        columns = ("type", "kind", "head", "frozen")
        render.table(columns, [[row[name] for name in columns] for row in rows], right="head")
    return CLEAN


@schema.command("show")
@click.argument("type_name", metavar="TYPE[@V]")
@_where
def show_command(
    type_name: str, modules: tuple[str, ...], entry_points: bool, schemas: Path | None
) -> int:
    """Prints a document: the frozen one of version V, or what the code declares now."""
    from aoserial.cli import findings

    name, _, version = type_name.partition("@")
    if version and not (version.isascii() and version.isdecimal()):
        raise click.UsageError(f"{type_name!r} is no TYPE@V, as acme.Int4Tensor@2")
    code = _owning(_codes(modules, entry_points, schemas), name)
    click.echo(findings.document(code, name, int(version) if version else None), nl=False)
    return CLEAN


@schema.command("freeze")
@click.argument("names", metavar="[TYPE]...", nargs=-1)
@_where
@click.option("--all", "every", is_flag=True, help="All types and enums.")
@click.option("--release", is_flag=True, help="Record the code of their steps as well.")
def freeze_command(  # noqa: PLR0917 - click calls it by keyword
    names: tuple[str, ...],
    modules: tuple[str, ...],
    entry_points: bool,
    schemas: Path | None,
    every: bool,
    release: bool,
) -> int:
    """Writes the documents of types, or extends them by what they may gain."""
    from aoserial.gate import freeze

    if bool(names) == every:
        raise click.UsageError("name the types to freeze, or say --all")
    codes = _codes(modules, entry_points, schemas)
    for code in codes if every else {id(c): c for c in (_owning(codes, n) for n in names)}.values():
        held = (*code.types, *code.enums)
        written = freeze(code, held if every else [n for n in names if n in held], release=release)
        for path in written:
            render.say(f"written: {_spell(code.folder)}/{path}")
        if not written:
            render.say(f"{_spell(code.folder)}: nothing to write")
    return CLEAN


@schema.command("draft")
@click.argument("type_name", metavar="TYPE")
@_where
@click.option("--against", default="HEAD", metavar="GITREF", help="Whose code wrote the old form.")
@click.option(
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="For the step; beside the class unless given.",
)
def draft_command(  # noqa: PLR0917 - click calls it by keyword
    type_name: str,
    modules: tuple[str, ...],
    entry_points: bool,
    schemas: Path | None,
    against: str,
    output: Path | None,
) -> int:
    """After a breaking edit: freezes the next version and begins the step that leads to it."""
    from aoserial.gate import draft

    code = _owning(_codes(modules, entry_points, schemas), type_name)
    done = draft(code, type_name, against=against, record=_recorder(), target=output)
    for path in done.written:
        render.say(f"written: {_spell(code.folder)}/{path}")
    for golden in done.goldens:
        render.say(f"written: {_spell(golden)}")
    if done.step is not None:
        render.say(f"written: {_spell(done.step)}")
    for note in done.notes:
        render.say(f"now {note}")
    return CLEAN


def _recorder() -> Callable[[str, Version], list[Path]] | None:
    """What records goldens of the project in this folder, if it declares golden cases."""
    from aoserial.golden import find_settings
    from aoserial.golden.old_code import holds, record_at

    settings = find_settings(Path.cwd())
    if settings is None:
        return None
    return lambda ref, version: (
        [] if holds(settings, version) else record_at(settings, ref, version)
    )


def _goldens(folder: Path | None) -> Goldens | None:
    """What the golden files of a folder show; without one, those of the project that is here."""
    from aoserial.golden import find_settings
    from aoserial.golden.showing import goldens_in, goldens_of

    if folder is not None:
        return goldens_in(folder)
    settings = find_settings(Path.cwd(), records=False)
    return None if settings is None else goldens_of(settings)


@schema.command("check")
@_where
@click.option(
    "--against", metavar="GITREF|DIR", help="Also compare the documents with those of a commit."
)
@click.option(
    "--mode",
    type=click.Choice(("read", "write", "full")),
    default="read",
    show_default=True,
    help="read: old files under new code. write: new files under old code. full: both.",
)
@click.option(
    "--goldens",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="A folder of golden files: each older version must have one. Those of the project in this "
    "folder (tool.aoserial of its pyproject.toml) unless given.",
)
@click.option("--format", "form", type=click.Choice(("text", "json", "github")), default="text")
def check_command(  # noqa: PLR0917 - click calls it by keyword
    modules: tuple[str, ...],
    entry_points: bool,
    schemas: Path | None,
    against: str | None,
    mode: Mode,
    goldens: Path | None,
    form: str,
) -> int:
    """Compares types with their frozen documents, and these with an earlier commit's."""
    from aoserial.cli import findings
    from aoserial.gate import check, code_of, our_code

    if modules or entry_points:
        codes, faults = code_of(modules, entry_points=entry_points, schemas=schemas)
    else:
        codes, faults = [our_code() if schemas is None else _elsewhere(our_code(), schemas)], []
    report = check(codes, mode=mode, against=against, goldens=_goldens(goldens))
    report.findings[:0] = faults
    findings.FORMATS[form](report)
    return ERROR if report.failed else FINDINGS if report.findings else CLEAN
