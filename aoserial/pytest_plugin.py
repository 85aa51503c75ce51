"""The pytest plugin: a project's goldens as tests. Start-up imports nothing heavy.

`[tool.aoserial]` of pyproject.toml names the file that declares the cases; pytest collects it, and
each check is a test: `int4_weight[acme-1.0]`, `int4_weight[today]`, `goldens[untouched]` …
`pytest --aoserial-record` records the goldens that are missing, and fails that run.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aoserial.errors import AoserialError
from aoserial.golden import Settings, find_settings, load_cases
from aoserial.golden.findings import Finding
from aoserial.golden.suite import Check, checks

MARK = "aoserial_golden"
_SETTINGS = pytest.StashKey[Settings | None]()


class GoldenError(Exception):
    """What a check found."""

    def __init__(self, findings: list[Finding]) -> None:
        super().__init__("\n".join(map(str, findings)))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("aoserial").addoption(
        "--aoserial-record",
        action="store_true",
        help="record the golden files that are missing, and fail this run",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}: a check of the project's golden files")
    recording = config.getoption("--aoserial-record")
    if recording and (hasattr(config, "workerinput") or config.getoption("numprocesses", None)):
        raise pytest.UsageError("--aoserial-record writes one MANIFEST.json: run it without -n")


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    settings = _settings(parent.config)
    if settings is None or file_path != settings.cases:
        return None
    return GoldenFile.from_parent(parent, path=file_path)


def _settings(config: pytest.Config) -> Settings | None:
    if _SETTINGS not in config.stash:
        try:
            config.stash[_SETTINGS] = find_settings(config.rootpath.resolve())
        except AoserialError as error:
            raise pytest.UsageError(str(error)) from error
    return config.stash[_SETTINGS]


class GoldenFile(pytest.File):
    """The file that declares the cases; it collects the checks of them all."""

    def collect(self) -> Iterator[pytest.Item]:
        settings = _settings(self.config)
        assert settings is not None
        try:
            cases = load_cases(self.path, root=settings.root)
        except AoserialError as error:
            raise self.CollectError(str(error)) from error
        record = self.config.getoption("--aoserial-record")
        for check in checks(settings, cases, record=record):
            yield GoldenItem.from_parent(self, name=check.name, check=check)


class GoldenItem(pytest.Item):
    """One check."""

    def __init__(self, *, check: Check, **rest: Any) -> None:
        super().__init__(**rest)
        self.check = check
        self.add_marker(MARK)

    def runtest(self) -> None:
        findings = self.check.run()
        if findings:
            raise GoldenError(findings)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        if isinstance(excinfo.value, GoldenError):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
