"""`aoserial golden`: a project's golden files recorded, checked, and read by many readers."""

from __future__ import annotations

import os
from pathlib import Path

import click

from aoserial.cli import render
from aoserial.cli.progress import watching

CLEAN, FINDINGS = 0, 1
_PROJECT = click.argument("project", default=".", type=click.Path(path_type=Path))


@click.group("golden")
def golden() -> None:
    """Golden files: written by old releases, read by new ones.

    PROJECT is a folder whose pyproject.toml says under [tool.aoserial] where its cases are.
    """


@golden.command("record")
@_PROJECT
def record_command(project: Path) -> int:
    """Records what today's code writes and no golden holds; never rewrites one."""
    return _run(project, record=True)


@golden.command("verify")
@_PROJECT
def verify_command(project: Path) -> int:
    """Reads all goldens and holds them against what they were."""
    return _run(project, record=False)


def _run(project: Path, *, record: bool) -> int:
    from aoserial.golden import load_cases
    from aoserial.golden.settings import settings_of
    from aoserial.golden.suite import checks

    settings = settings_of(project.resolve())
    cases = load_cases(settings.cases, root=settings.root)
    wrong = done = 0
    for check in checks(settings, cases, record=record):
        findings = check.run()
        done += 1
        wrong += bool(findings)
        for finding in findings:
            render.say(finding)
        if not findings:
            render.say(f"ok {check.name}")
    render.say(f"{done} checks, {wrong} with findings", bold=True)
    return FINDINGS if wrong else CLEAN


@golden.command("report")
@click.argument("folders", nargs=-1, type=click.Path(path_type=Path), metavar="[FOLDER]...")
@click.option("--html", type=click.Path(path_type=Path), help="Write one self-contained page.")
@click.option("--json", "json_path", type=click.Path(path_type=Path), help="Write the figures.")
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="PACKAGE==VERSION",
    help="Read with that release of aoserial or torchao too, in an environment made for it.",
)
@click.option(
    "--reader-python",
    "pythons",
    multiple=True,
    metavar="PATH",
    help="Read with the torchao, else the aoserial, of that Python too.",
)
@click.option(
    "--import",
    "modules",
    multiple=True,
    metavar="MODULE",
    help="Import it in this checkout's reader: it registers types.",
)
@click.option(
    "--allow-refused", is_flag=True, help="A file that this checkout refuses is no finding."
)
@click.option("--jobs", default=os.cpu_count() or 1, show_default=True, help="Child processes.")
@click.option("--timeout", default=60.0, show_default=True, help="Seconds a file may take.")
def report_command(  # noqa: PLR0917 - click calls it by keyword
    folders: tuple[Path, ...],
    html: Path | None,
    json_path: Path | None,
    readers: tuple[str, ...],
    pythons: tuple[str, ...],
    modules: tuple[str, ...],
    allow_refused: bool,
    jobs: int,
    timeout: float,
) -> int:
    """Reads golden files of all writers with several readers, and draws the grid.

    FOLDER holds goldens, `<writer>/<case>/`, or is a tar archive of such; without any, those of the
    project in this folder are taken. Exit status 1 when this checkout does not read a file as it
    was written; what other readers make of it is reported only.
    """
    from aoserial.golden.settings import settings_of
    from aoserial.report import lines, markdown, page, read_all

    if not folders:
        folders = (settings_of(Path.cwd()).goldens,)
    with watching("reading") as progress:
        found = read_all(
            folders,
            releases=readers,
            pythons=pythons,
            modules=modules,
            jobs=jobs,
            timeout=timeout,
            progress=progress,
        )
    if html is not None:
        html.write_text(page(found), encoding="utf-8")
    if json_path is not None:
        json_path.write_text(found.to_json(), encoding="utf-8")
    for line in lines(found, allow_refused=allow_refused):
        render.say(line)
    if (github := os.environ.get("GITHUB_STEP_SUMMARY")) is not None:
        with open(github, "a", encoding="utf-8") as file:
            file.write(markdown(found, allow_refused=allow_refused))
    return FINDINGS if found.findings(allow_refused=allow_refused) else CLEAN
