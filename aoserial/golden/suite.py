"""All checks of a project's goldens, one by one: what the pytest plugin and the command run.

Torch-free until a check runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

from aoserial.errors import AoserialError
from aoserial.golden.cases import GoldenCase
from aoserial.golden.coverage import coverage_findings, unused_findings
from aoserial.golden.findings import Finding
from aoserial.golden.settings import Settings
from aoserial.golden.store import Golden, Store


@dataclass(frozen=True)
class Check:
    """One check.

    Attributes:
        name: `int4_weight[acme-1.0]`, `int4_weight[today]`, `goldens[untouched]` …
        run: gives what is wrong.
    """

    name: str
    run: Callable[[], list[Finding]]


def checks(
    settings: Settings, cases: Mapping[str, GoldenCase], *, record: bool = False
) -> Iterator[Check]:
    """The checks of a project, those of the whole folder last.

    Args:
        record: record goldens that are missing.
    """
    store = Store(settings.goldens)
    goldens = list(store)
    for case in cases.values():
        for golden in goldens:
            if golden.case == case.name:
                yield Check(f"{case.name}[{golden.writer}]", partial(_golden, case, golden, store))
        if not case.retired:
            run = partial(_today, case, settings, store, record)
            yield Check(f"{case.name}[today]", run)
    yield Check("goldens[untouched]", lambda: list(store.check()))
    yield Check("goldens[used]", lambda: list(unused_findings(cases, store)))
    if settings.schemas is not None:
        yield Check("goldens[complete]", partial(_complete, settings))


def _complete(settings: Settings) -> list[Finding]:
    try:
        return list(coverage_findings(settings))
    except AoserialError as error:
        return [Finding(rule="GOLDEN_UNREADABLE", where="goldens", message=str(error))]


def _golden(case: GoldenCase, golden: Golden, store: Store) -> list[Finding]:
    from aoserial.golden.verifying import check_golden  # needs torch

    return check_golden(case, golden, store)


def _today(case: GoldenCase, settings: Settings, store: Store, record: bool) -> list[Finding]:
    from aoserial.golden.verifying import check_today  # needs torch

    return check_today(case, settings, store, record=record)
