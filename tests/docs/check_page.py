"""Runs all blocks of one Markdown page: python check_page.py PAGE. Says what fails, and where."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import shlex
import sys
import tempfile
import textwrap
import tomllib
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from aoserial.cli.app import cli, run

sys.path.insert(0, str(Path(__file__).parent))

import scenes
from blocks import Block, blocks

_PYTEST_OPTIONS = {"--aoserial-record", "-m", "aoserial_golden"}


class PageError(Exception):
    """A block that does not hold."""


def main(page: Path) -> int:
    name = os.path.relpath(page, scenes.ROOT)
    try:
        found = list(blocks(page.read_text()))
    except ValueError as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 1
    commands = [block for block in found if block.language == "console"]
    others = [block for block in found if block.language != "console"]
    failed = _in_a_process(lambda: _failures(commands, name, scenes.CONSOLE.get(name)))
    failed += _failures(others, name, scenes.PYTHON.get(name, scenes.bare))
    print(f"{name}: {len(found)} blocks, {failed} failed")
    return 1 if failed else 0


def _in_a_process(count: Callable[[], int]) -> int:
    """Runs it in a process of its own: what commands and blocks register is not each other's."""
    child = os.fork()
    if not child:
        failed = count()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(failed)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _failures(
    found: list[Block], name: str, scene: Callable[[Path], dict[str, object] | None] | None
) -> int:
    """How many blocks do not hold, in a new folder that the scene was set in."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        needed = any(block.language in ("python", "console") for block in found)
        names = {"__name__": "__main__"} | ((scene(Path(folder)) if scene and needed else {}) or {})
        for block in found:
            try:
                _check(block, name, names)
            except Exception:
                failed += 1
                print(f"{name}, block at line {block.line}:", file=sys.stderr)
                traceback.print_exc()
    return failed


def _check(block: Block, name: str, names: dict[str, object]) -> None:
    match block.language:
        case "python":
            _python(block, name, names)
        case "console":
            _console(block)
        case "json":
            json.loads(block.text)
        case "toml":
            tomllib.loads(block.text)
        case "yaml":
            _hooks(block)


def _python(block: Block, name: str, names: dict[str, object]) -> None:
    if block.mark:
        compile(textwrap.dedent(block.text), name, "exec", dont_inherit=True)
        return
    text = "\n" * block.line + block.text  # so that a traceback has the page's own lines
    exec(compile(text, name, "exec", dont_inherit=True), names)  # the page is ours


def _console(block: Block) -> None:
    for words, shown in _commands(block):
        match words:
            case ["aoserial", *arguments]:
                _check_options(arguments)
                if not block.mark:
                    _run(arguments, shown)
            case ["make", target]:
                makefile = (scenes.ROOT / "Makefile").read_text()
                if not re.search(rf"^{re.escape(target)}:", makefile, re.MULTILINE):
                    raise PageError(f"the Makefile has no target {target}")
            case ["pytest", *options]:
                if unknown := set(options) - _PYTEST_OPTIONS:
                    raise PageError(f"options of pytest that nobody declared here: {unknown}")
            case ["python", script, *_]:
                if not (scenes.ROOT / script).is_file():
                    raise PageError(f"there is no {script}")
            case ["pip", "install", *_]:
                continue
            case _:
                raise PageError(f"no check knows the command {words}")


def _hooks(block: Block) -> None:
    """Whether the hooks that are named are offered here; the rest of YAML is not looked at."""
    offered = re.findall(r"id: *(\S+)", (scenes.ROOT / ".pre-commit-hooks.yaml").read_text())
    if unknown := set(re.findall(r"- id: *(\S+)", block.text)) - set(offered):
        raise PageError(f".pre-commit-hooks.yaml offers no {unknown}")


def _commands(block: Block) -> Iterator[tuple[list[str], list[str]]]:
    """The words of each command, without its comment, and the lines it is said to print."""
    command, shown = "", []
    for line in [*block.text.splitlines(), "$ "]:
        if not line.startswith("$ "):
            shown.append(line)
            continue
        if command:
            yield shlex.split(command, comments=True), shown
        elif shown:
            raise PageError(f"this is no command and no output of one: {shown}")
        command, shown = line[2:], []


def _check_options(arguments: list[str]) -> None:
    """Whether there is such a command with such options; nothing is run."""
    command: click.Command = cli
    context = click.Context(cli, info_name="aoserial")
    rest = list(arguments)
    while isinstance(command, click.Group):
        name = rest.pop(0)
        found = command.get_command(context, name)
        if found is None:
            raise PageError(f"there is no command {name}")
        command = found
    command.make_context(command.name, rest)


def _run(arguments: list[str], shown: list[str]) -> None:
    """Runs a command; whatever it is said to print it has to, in that order, among other lines."""
    out, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(errors):
        status = run(arguments)
    if status not in (0, 1):  # findings are an answer, errors are none
        raise PageError(f"{arguments}: status {status}: {errors.getvalue()}")
    printed = iter([" ".join(line.split()) for line in out.getvalue().splitlines()])
    for line in shown:
        if " ".join(line.split()) not in printed:
            raise PageError(f"{arguments} does not print {line!r} but:\n{out.getvalue()}")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
