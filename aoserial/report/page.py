"""The grid as one HTML page: no network, no library, nothing from a file taken as markup."""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from aoserial.report.matrix import OUTCOMES, Matrix, Reader, Row

_TEMPLATE = Path(__file__).with_name("page.html")
_NAMES = tuple(OUTCOMES)


def page(matrix: Matrix) -> str:
    """The page: a document of its own.

    Names and reasons come from files: in the data they are JSON whose `<`, `>` and `&` are escapes,
    and the script puts them on the page as text, never as markup.
    """
    text = json.dumps(_data(matrix), separators=(",", ":"), ensure_ascii=True)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    template = _TEMPLATE.read_text(encoding="utf-8")
    before, rest = template.split("@COUNTS@")
    middle, after = rest.split("@DATA@")
    return before + _counts(matrix) + middle + text + after


def _data(matrix: Matrix) -> dict[str, Any]:
    """The grid with every text once; a row names texts by their places."""
    texts: dict[str, int] = {}

    def place(text: str) -> int:
        return texts.setdefault(text, len(texts))

    rows = [
        [
            place(row.writer),
            place(row.case),
            place(row.file),
            [place(kind) for kind in row.types],
            place(row.family),
            [[_NAMES.index(r.outcome), place(r.reason), place(r.told)] for r in row.readings],
        ]
        for row in sorted(matrix.rows, key=_by_family(matrix))
    ]
    return {
        "outcomes": [[name, means] for name, means in OUTCOMES.items()],
        "readers": [[reader.label, _details(reader)] for reader in matrix.readers],
        "rows": rows,
        "texts": list(texts),
    }


def _details(reader: Reader) -> str:
    return f"{reader.package} {reader.version}, torch {reader.torch}, Python {reader.python}"


def _by_family(matrix: Matrix) -> Callable[[Row], tuple[int, str, str, str]]:
    """Writers in their order; within one, like beside like."""
    order = {writer: number for number, writer in enumerate(matrix.writers)}
    return lambda row: (order[row.writer], row.family, row.case, row.file)


def _counts(matrix: Matrix) -> str:
    """The counts as plain tables, for a browser that runs no script."""
    by_writer = [(w, [r for r in matrix.rows if r.writer == w]) for w in matrix.writers]
    by_family = [(f, [r for r in matrix.rows if r.family == f]) for f in matrix.families]
    return _table("release", by_writer, matrix) + _table("family", by_family, matrix)


def _table(heading: str, groups: Iterable[tuple[str, list[Row]]], matrix: Matrix) -> str:
    labels = "".join(
        f"<th>{html.escape(reader.label)}: {name}</th>"
        for reader in matrix.readers
        for name in _NAMES
    )
    lines = [f"<table><tr><th>{heading}</th><th>files</th>{labels}</tr>"]
    for name, rows in groups:
        counts = [matrix.counts(place, rows) for place in range(len(matrix.readers))]
        cells = "".join(f"<td>{count[one]}</td>" for count in counts for one in _NAMES)
        lines.append(f"<tr><th>{html.escape(name)}</th><td>{len(rows)}</td>{cells}</tr>")
    return "".join([*lines, "</table>"])
