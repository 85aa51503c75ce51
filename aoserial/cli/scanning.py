"""What `aoserial scan` prints of one file or of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from aoserial.cli import render
from aoserial.storage.pickle.folders import Scanned
from aoserial.storage.pickle.scan import Report

CLEAN, FINDINGS, ERROR = 0, 1, 2


def show(path: str, found: Iterable[Scanned]) -> int:
    """Prints what was found in a file, or in many, each as it comes; the exit status.

    A finding counts for more than a file that could not be read.
    """
    counts: Counter[str] = Counter()
    alone = False
    for one in found:
        alone = one.path == path
        counts[_show(one, alone=alone)] += 1
    if not alone:
        render.say(
            f"{counts.total()} files: {counts['findings']} with findings, {counts['harmless']} "
            f"whose pickles run no code, {counts['without']} without a pickle, "
            f"{counts['unread']} that could not be read",
            bold=True,
        )
    return FINDINGS if counts["findings"] else ERROR if counts["unread"] else CLEAN


def _show(one: Scanned, *, alone: bool) -> str:
    """Prints what came of a file, of many only what matters, and gives it a name."""
    if one.fault is not None:
        render.error(str(one.fault))
        return "unread"
    if one.report is None:
        if alone:
            render.say(f"{one.path}: a safetensors file, which holds no pickle")
        return "without"
    runs_code = one.report.runs_code or one.report.fault is not None
    if alone or runs_code:
        _table(one.path, one.report)
    else:
        render.say(f"{one.path}: {one.report.container}, nothing in it runs code")
    return "findings" if runs_code else "harmless"


def _table(path: str, report: Report) -> None:
    render.say(path, bold=True)
    columns = ("what", "name", "risk", "times", "pickle", "at byte")
    rows = [
        (found.what, found.path, found.risk.value, found.count, found.stream, found.at)
        for found in report.findings
    ]
    render.table(columns, rows, right="times pickle at")
    if report.fault is not None:
        render.say(f"not read to the end: {report.fault}")
    if report.runs_code:
        render.say("plain torch.load would import or run what is not known to be harmless")
    elif report.fault is None:
        render.say(f"{report.container}: nothing in it runs code")
