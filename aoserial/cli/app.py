"""The commands: options in, library call, rendering, exit status.

Exit status: 0 clean, 1 findings, 2 error. Errors go to stderr in a sentence or two, never as a
traceback. torch is imported by the commands that need it alone.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from aoserial._version import __version__
from aoserial.checkpoint import inspect, plan, verify
from aoserial.cli import render
from aoserial.cli.golden import golden
from aoserial.cli.progress import Watcher, watching
from aoserial.cli.schema import schema
from aoserial.errors import AoserialError
from aoserial.storage import room_for

CLEAN, FINDINGS, ERROR = 0, 1, 2
_INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it


def run(arguments: list[str] | None = None) -> int:
    """Runs the command line and returns its exit status."""
    try:
        status = cli.main(arguments, prog_name="aoserial", standalone_mode=False)
        return status if isinstance(status, int) else CLEAN
    except AoserialError as error:
        render.error(str(error))
    except click.UsageError as error:
        render.error(error.format_message())
    except BrokenPipeError:  # the reader of our output left, as `head` does
        sys.stderr.close()
    except _SetInterrupted as told:
        render.error(told.message)
        return _INTERRUPTED
    except (KeyboardInterrupt, click.Abort):
        render.error("interrupted; nothing was left half written")
        return _INTERRUPTED
    return ERROR


class _SetInterrupted(click.ClickException):
    """Work on a set of shards was interrupted, and can be gone on with."""


@contextmanager
def _resumable(verb: str) -> Iterator[Watcher]:
    """Shows the progress of writing; when a set is interrupted, says how to go on with it."""
    with watching(verb) as watcher:
        try:
            yield watcher
        except KeyboardInterrupt:
            if not watcher.of_set:
                raise
            raise _SetInterrupted(
                "interrupted; no file was left half written. Finished shards of the set stay, and "
                "the same command with --resume goes on with them"
            ) from None


def _assume_option(function: Callable[..., Any]) -> Callable[..., Any]:
    return click.option(
        "--assume",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_parse_assume,
        help="Answer what a file cannot tell.",
    )(function)


def _parse_assume(_: object, __: object, pairs: tuple[str, ...]) -> dict[str, str]:
    answers = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals:
            raise click.BadParameter(f"{pair!r} is not KEY=VALUE")
        answers[key] = value
    return answers


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="aoserial")
def cli() -> None:
    """Reads, checks and upgrades quantized PyTorch checkpoints."""


cli.add_command(schema)


@cli.command("inspect")
@click.argument("path")
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
@click.option("--kernels", is_flag=True, help="Show what each weight would run on, and why.")
@click.option(
    "--device", default="cpu", help="With --kernels: cpu or cuda of this machine, or as sm90."
)
@_assume_option
def inspect_command(
    path: str, as_json: bool, kernels: bool, device: str, assume: dict[str, str]
) -> int:
    """Shows what a checkpoint holds, from its header alone."""
    if kernels:
        return _show_kernels(path, device, assume, as_json=as_json)
    summary = inspect(path)
    if as_json:
        data = dataclasses.asdict(summary)
        for row, entry in zip(summary.types, data["types"], strict=True):
            entry["bits_per_weight"] = row.bits_per_weight
        click.echo(json.dumps(data, indent=2))
    else:
        render.summary(summary)
    return FINDINGS if any(row.problem for row in summary.types) else CLEAN


def _show_kernels(path: str, device: str, assume: dict[str, str], *, as_json: bool) -> int:
    from aoserial.checkpoint.explaining import explain_kernels  # imports torch

    rows = explain_kernels(path, device=device, assume=assume)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(row) for row in rows], indent=2))
    else:
        render.kernels(rows)
    return CLEAN


@cli.command("migrate")
@click.argument("src")
@click.argument("dst", required=False)
@click.option("--to", metavar="TYPE@V", help="Stop at that version.")
@click.option("--dry-run", is_flag=True, help="Show the plan and write nothing.")
@click.option(
    "--in-place", is_flag=True, help="Replace SRC; its header alone where that is enough."
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted migration.")
@click.option("--allow-lossy", is_flag=True, help="Run steps that lose something.")
@_assume_option
def migrate_command(  # noqa: PLR0917 - click calls it by keyword
    src: str,
    dst: str | None,
    to: str | None,
    dry_run: bool,
    in_place: bool,
    resume: bool,
    allow_lossy: bool,
    assume: dict[str, str],
) -> int:
    """Rewrites a checkpoint at the newest versions of its types."""
    if dry_run:
        found, target = plan(src, to=to, assume=assume), os.path.realpath(dst or src)
        free = room_for(target)
        render.plan(found)
        render.room(found, os.path.dirname(target), free)
        return FINDINGS if free is not None and found.bytes_after > free else CLEAN
    if dst is None and not in_place:
        raise click.UsageError("say where to write (DST), or --in-place, or --dry-run")
    if dst is not None and in_place:
        raise click.UsageError("DST and --in-place contradict each other")
    from aoserial.checkpoint.migrating import migrate  # needs torch

    with _resumable("migrating") as progress:
        done = migrate(
            src,
            dst,
            to=to,
            in_place=in_place,
            resume=resume,
            allow_lossy=allow_lossy,
            assume=assume,
            progress=progress,
        )
    render.migrated(done, dst or src)
    return CLEAN


@cli.command("convert")
@click.argument("src")
@click.argument("dst")
@click.option(
    "--to",
    type=click.Choice(("safetensors", "pt", "torchao", "plain")),
    help="What to write; DST's name decides unless given. plain: dequantized, ordinary tensors.",
)
@click.option("--resume", is_flag=True, help="Go on with an interrupted conversion.")
@_assume_option
def convert_command(src: str, dst: str, to: Any, resume: bool, assume: dict[str, str]) -> int:
    """Writes a checkpoint in another format."""
    from aoserial.checkpoint.converting import convert  # needs torch

    with _resumable("converting") as progress:
        done = convert(src, dst, to=to, resume=resume, assume=assume, progress=progress)
    render.converted(done)
    return CLEAN


@cli.command("verify")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option("--deep", is_flag=True, help="Read every byte: compare checksums, check values.")
@_assume_option
def verify_command(paths: tuple[str, ...], deep: bool, assume: dict[str, str]) -> int:
    """Checks checkpoints against what they say of themselves."""
    status = CLEAN
    for path in paths:
        with watching("verifying") as progress:
            verdict = verify(path, deep=deep, assume=assume, progress=progress)
        render.verdict(verdict, deep=deep)
        status = status if verdict else FINDINGS
    return status


@cli.command("diff")
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
@_assume_option
def diff_command(left: str, right: str, as_json: bool, assume: dict[str, str]) -> int:
    """Compares the tensors of two checkpoints: types, fields, and values."""
    from aoserial.checkpoint.comparing import compare
    from aoserial.cli import comparison

    with watching("comparing") as progress:
        found = compare(left, right, assume=assume, progress=progress)
    if as_json:
        click.echo(comparison.as_json(found))
    else:
        comparison.show(found)
    return CLEAN if found else FINDINGS


@cli.command("scan")
@click.argument("path")
def scan_command(path: str) -> int:
    """Lists what pickles would import and call; runs nothing.

    PATH is a file, the index of a set, or a folder, of which all files and those below are read.
    """
    from aoserial.cli import scanning  # tables that no other command needs
    from aoserial.storage.pickle.folders import scan_all

    return scanning.show(path, scan_all(path))


@cli.command("history")
@click.argument("type_name", metavar="[TYPE]", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print for machines.")
def history_command(type_name: str | None, as_json: bool) -> int:
    """Shows a type's versions and the steps between them; without TYPE, all types."""
    from aoserial.checkpoint.history import history, types  # the tables of torchao
    from aoserial.cli import history as shown

    found = types() if type_name is None else history(type_name)
    if as_json:
        rows = found if isinstance(found, list) else [found]
        plain = [dataclasses.asdict(row) for row in rows]
        click.echo(json.dumps(plain if type_name is None else plain[0], indent=2))
    elif isinstance(found, list):
        shown.types(found)
    else:
        shown.history(found)
    return CLEAN


cli.add_command(golden)


@cli.command("demo")
def demo_command() -> int:
    """Takes a checkpoint that an old torchao wrote all the way to a running model."""
    from aoserial.cli.demo import demo  # needs torch

    return CLEAN if demo() else FINDINGS
