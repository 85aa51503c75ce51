"""The grid in a few lines: for a terminal, and as Markdown for a job summary of GitHub's."""

from __future__ import annotations

import re
from collections.abc import Iterator

from aoserial.report.matrix import OUTCOMES, Matrix, Outcome, Row

_SHOWN = 20  # files listed by name
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@-])")
_MARKS: dict[Outcome, str] = {"different": "≠", "refused": "–", "crashed": "×"}


def lines(matrix: Matrix, *, allow_refused: bool = False) -> Iterator[str]:
    """A line for each reader, and one for each file that this checkout reads wrongly."""
    for place, reader in enumerate(matrix.readers):
        counts = matrix.counts(place)
        told = ", ".join(f"{counts[name]} {name}" for name in OUTCOMES if counts[name])
        yield f"{reader.label}: {len(matrix.rows)} files: {told}"
    for row in matrix.findings(allow_refused=allow_refused):
        reading = row.readings[0]
        yield f"{reading.outcome}: {row.writer}/{row.case}/{row.file}: {reading.reason}"


def markdown(matrix: Matrix, *, allow_refused: bool = False) -> str:
    """A table of writers and readers; whatever comes from a file is escaped."""
    head = ["written by", "files", *(reader.label for reader in matrix.readers)]
    table = [head, ["---", "---:", *["---"] * len(matrix.readers)]]
    for writer in matrix.writers:
        rows = [row for row in matrix.rows if row.writer == writer]
        cells = [_cell(matrix, place, rows) for place in range(len(matrix.readers))]
        table.append([writer, str(len(rows)), *cells])
    text = "\n".join(f"| {' | '.join(map(_escape, line))} |" for line in (table[0], *table[2:]))
    first, _, rest = text.partition("\n")
    rule = f"| {' | '.join(table[1])} |"
    bad = matrix.findings(allow_refused=allow_refused)
    listed = [
        f"* {row.readings[0].outcome}: {_escape(f'{row.writer}/{row.case}/{row.file}')}: "
        f"{_escape(row.readings[0].reason)}"
        for row in bad[:_SHOWN]
    ]
    more = [f"* and {len(bad) - _SHOWN} more"] if len(bad) > _SHOWN else []
    return "\n".join(["## Golden files", "", first, rule, rest, "", *listed, *more, ""])


def _cell(matrix: Matrix, reader: int, rows: list[Row]) -> str:
    counts = matrix.counts(reader, rows)
    wrong = [f"{counts[name]} {mark} {name}" for name, mark in _MARKS.items() if counts[name]]
    return ", ".join([f"{counts['equal']} equal", *wrong])


def _escape(text: str) -> str:
    one_line = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return _MARKUP.sub(r"\\\1", one_line)
