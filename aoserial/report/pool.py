"""A reader as a pool of child processes: whatever a file does to one, the others go on."""

from __future__ import annotations

import json
import queue
import select
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

from aoserial.errors import OptionError
from aoserial.report.files import File

_START_SECONDS = 600.0  # importing all of torchao on a busy machine


@dataclass(frozen=True, kw_only=True)
class Command:
    """How to start a reader.

    Attributes:
        python: the executable.
        package: `aoserial`, `torchao` or `any`.
        options: for the reader: `--path`, a folder, `--import`, a module …
        label: what the reader is called; its package and version, if empty.
    """

    python: str
    package: str = "any"
    options: tuple[str, ...] = ()
    label: str = ""

    @property
    def words(self) -> list[str]:
        script = Path(__file__).with_name("reader.py")
        return [self.python, "-I", "-W", "ignore", str(script), self.package, *self.options]


class Child:
    """One process, started when it is made."""

    def __init__(self, command: Command) -> None:
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        try:
            self._process = subprocess.Popen(
                command.words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
            )
        except OSError as error:
            self._errors.close()
            raise OptionError(f"reader {command.python} does not start: {error}") from error
        try:
            self.hello = self._answer(_START_SECONDS)
        except _DeadError as death:
            tail = self._said()
            self.close()
            raise OptionError(
                f"reader {command.python} ({command.package}) does not start: {tail or death}"
            ) from death

    def read(self, file: File, timeout: float) -> dict[str, Any]:
        """What the reader makes of a file.

        Raises:
            _DeadError: the process died of it, or is slower than `timeout` seconds.
        """
        job = json.dumps({"path": str(file.path), "expected": str(file.expected)})
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(job.encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise _DeadError(self._end()) from None
        return self._answer(timeout)

    def _answer(self, timeout: float) -> dict[str, Any]:
        out = self._process.stdout
        assert out is not None
        if not select.select([out], [], [], timeout)[0]:
            raise _DeadError(f"no answer in {timeout:g} seconds")
        line = out.readline()
        if not line.endswith(b"\n"):
            raise _DeadError(self._end())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _end(self) -> str:
        code = self._process.wait()
        if code >= 0:
            return f"exit status {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def _said(self) -> str:
        """The last line on its stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else ""

    def close(self) -> None:
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except BrokenPipeError:  # what it did not take any more
                    continue
        self._process.kill()
        self._process.wait()
        self._errors.close()


class _DeadError(Exception):
    """A process that died, and of what."""


@dataclass
class Pool:
    """Reads files with one reader.

    Attributes:
        command: of the reader.
        jobs: how many processes, at most.
        timeout: seconds that a file may take.
        hello: what the reader says it is; empty until it has run.
    """

    command: Command
    jobs: int
    timeout: float
    hello: dict[str, str] = field(default_factory=dict)

    def read(
        self, files: Sequence[File], done: Callable[[File], object] = lambda _: None
    ) -> list[dict[str, Any]]:
        """The answers for files, in their order; a reader that died gives `crashed`.

        Raises:
            OptionError: the reader does not start.
        """
        answers: list[dict[str, Any]] = [{} for _ in files]
        waiting: queue.SimpleQueue[tuple[int, File]] = queue.SimpleQueue()
        for job in enumerate(files):
            waiting.put(job)
        failures: list[BaseException] = []
        first = Child(self.command)  # so that a reader that cannot start says so once
        self.hello = first.hello
        children: Iterable[Child | None] = [first, *[None] * (min(self.jobs, len(files)) - 1)]
        threads = [
            threading.Thread(target=self._work, args=(child, waiting, answers, done, failures))
            for child in children
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return answers

    def _work(
        self,
        child: Child | None,
        waiting: queue.SimpleQueue[tuple[int, File]],
        answers: list[dict[str, Any]],
        done: Callable[[File], object],
        failures: list[BaseException],
    ) -> None:
        try:
            while not failures:
                try:
                    place, file = waiting.get_nowait()
                except queue.Empty:
                    return
                child = child or Child(self.command)
                try:
                    answers[place] = child.read(file, self.timeout)
                except _DeadError as death:
                    answers[place] = {"outcome": "crashed", "reason": str(death)}
                    child.close()
                    child = None
                done(file)
        except BaseException as error:
            failures.append(error)
        finally:
            if child is not None:
                child.close()
