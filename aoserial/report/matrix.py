"""The grid: every golden file read by every reader."""

from __future__ import annotations

import dataclasses
import json
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from aoserial.report.environments import environment_with, package_of
from aoserial.report.files import File, find_files
from aoserial.report.pool import Command, Pool
from aoserial.storage.progress import Progress

Outcome: TypeAlias = Literal["equal", "different", "refused", "crashed"]
# outcome → what it means
OUTCOMES: dict[Outcome, str] = {
    "equal": "every tensor has the writer's values, bit for bit",
    "different": "read without an error, and not as it was written",
    "refused": "an error says why it is not read",
    "crashed": "the process died, hung, or raised what no reader should",
}
FORMAT = 1
HERE = "this checkout"


@dataclass(frozen=True, kw_only=True, slots=True)
class Reader:
    """One reader.

    Attributes:
        label: `this checkout`, `torchao 0.18.0`.
        package, version, torch, python: what it ran.
    """

    label: str
    package: str
    version: str
    torch: str
    python: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """What one reader made of one file.

    Attributes:
        outcome: see `OUTCOMES`.
        reason: why it is not equal; empty when it is.
        told: what the file does not tell, and the reader had to be told.
    """

    outcome: Outcome
    reason: str = ""
    told: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One file.

    Attributes:
        writer, case, file: `acme-1.0`, `int4_linear`, `model.safetensors`.
        types: the types in it with their versions.
        family: what its tensors become; `several`, `inert`, `plain tensors` or `unknown` where that
            is no type.
        readings: by each reader, in the order of `Matrix.readers`.
    """

    writer: str
    case: str
    file: str
    types: tuple[str, ...]
    family: str
    readings: tuple[Reading, ...]


@dataclass(frozen=True, kw_only=True)
class Matrix:
    """All files by all readers, this checkout first."""

    readers: tuple[Reader, ...]
    rows: tuple[Row, ...]

    def findings(self, *, allow_refused: bool = False) -> list[Row]:
        """The files that this checkout does not read as they were written.

        Args:
            allow_refused: leave out those that it refuses, with a reason.
        """
        good = ("equal", "refused") if allow_refused else ("equal",)
        return [row for row in self.rows if row.readings[0].outcome not in good]

    @property
    def writers(self) -> list[str]:
        return list(dict.fromkeys(row.writer for row in self.rows))

    @property
    def families(self) -> list[str]:
        return sorted({row.family for row in self.rows})

    def counts(self, reader: int, rows: Iterable[Row] | None = None) -> Counter[Outcome]:
        """How many files came out how."""
        return Counter(
            row.readings[reader].outcome for row in (self.rows if rows is None else rows)
        )

    def to_json(self) -> str:
        """The whole grid for machines; a line a file."""
        head = {
            "matrix": FORMAT,
            "readers": [dataclasses.asdict(reader) for reader in self.readers],
        }
        rows = ",\n".join(f"  {json.dumps(dataclasses.asdict(row))}" for row in self.rows)
        return f'{json.dumps(head)[:-1]}, "files": [\n{rows}\n]}}\n'


def read_all(
    places: Sequence[Path],
    *,
    releases: Sequence[str] = (),
    pythons: Sequence[str] = (),
    modules: Sequence[str] = (),
    jobs: int = 1,
    timeout: float = 60.0,
    progress: Progress | None = None,
) -> Matrix:
    """Reads golden files with this checkout and other readers.

    Args:
        places: folders, or tar archives, that hold `<writer>/<case>/`.
        releases: `torchao==0.18.0` …: read with that release, installed for the purpose.
        pythons: executables: read with the torchao they have, else with their aoserial.
        modules: this checkout's reader imports them; they register types.
        jobs: child processes at a time.
        timeout: seconds a file may take.
        progress: called with bytes done and bytes in all.

    Raises:
        MissingFileError, FormatError: a place without goldens.
        OptionError: a reader that cannot be had, or does not start.
    """
    for release in releases:
        package_of(release)  # raises, before anything is installed
    with tempfile.TemporaryDirectory(prefix="aoserial-report-") as scratch:
        files = find_files(places, Path(scratch) / "unpacked")
        commands = [_this_checkout(modules)]
        commands += [Command(python=python) for python in pythons]
        for number, release in enumerate(releases):
            python = environment_with(release, Path(scratch) / f"environment-{number}")
            commands.append(Command(python=str(python), package=package_of(release)))
        pools = [Pool(command, jobs, timeout) for command in commands]
        ticks = _Ticks(len(pools) * sum(_size(file) for file in files), progress)
        columns = [pool.read(files, ticks) for pool in pools]
    return Matrix(
        readers=tuple(_reader(pool) for pool in pools),
        rows=tuple(_row(file, answers) for file, *answers in zip(files, *columns, strict=True)),
    )


def _this_checkout(modules: Sequence[str]) -> Command:
    package = Path(__file__).parents[2]
    words = ["--path", str(package), "--path", str(Path.cwd())]
    for module in modules:
        words += ["--import", module]
    return Command(python=sys.executable, package="aoserial", options=tuple(words), label=HERE)


class _Ticks:
    """Counts bytes of files that are done; called from several threads."""

    def __init__(self, total: int, report: Progress | None) -> None:
        self._done, self._total, self._report = 0, total, report
        self._lock = threading.Lock()

    def __call__(self, file: File) -> None:
        with self._lock:
            self._done += _size(file)
            if self._report is not None:
                self._report(self._done, self._total)


def _size(file: File) -> int:
    return file.path.stat().st_size


def _reader(pool: Pool) -> Reader:
    hello = pool.hello
    label = pool.command.label or f"{hello['package']} {hello['version']}"
    return Reader(label=label, **hello)


def _row(file: File, answers: list[dict[str, Any]]) -> Row:
    kinds = answers[0].get("becomes")
    family = "unknown" if kinds is None else "plain tensors" if not kinds else "several"
    return Row(
        writer=file.writer,
        case=file.case,
        file=file.path.name,
        types=tuple(answers[0].get("types", ())),
        family=kinds[0] if kinds and len(kinds) == 1 else family,
        readings=tuple(
            Reading(
                outcome=answer["outcome"],
                reason=answer["reason"],
                told=", ".join(f"{key}={value}" for key, value in answer.get("told", {}).items()),
            )
            for answer in answers
        ),
    )
