"""The report of a sweep, read from standard input, as the table of docs/reliability.md.

Exits with 1 when a promise was broken.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any


def main() -> int:
    report = json.load(sys.stdin)
    rows: dict[str, Counter[str]] = {}
    bad: list[str] = []
    for scenario in report["scenarios"].values():
        for kind, tally in scenario["tallies"].items():
            rows.setdefault(kind, Counter()).update(_counts(tally))
            bad += tally["bad"]
    print(f"{len(report['scenarios'])} scenarios, {report['seconds']:.0f} s\n")
    columns = ("runs", "injected", "old", "new", "a third state", "temp file left", "gone on with")
    print("| fault |", " | ".join(columns), "|")
    print("|---" * (len(columns) + 1) + "|")
    for kind, counts in rows.items():
        print(f"| {kind} |", " | ".join(str(counts[column]) for column in columns), "|")
    for finding, count in Counter(bad).items():
        print(f"{count} × {finding}", file=sys.stderr)
    return bool(bad)


def _counts(tally: dict[str, Any]) -> Counter[str]:
    counts = Counter(
        {
            "runs": tally["runs"],
            "injected": tally["injected"],
            "temp file left": tally["left"],
            "gone on with": tally["again"],
        }
    )
    for end, count in tally["ends"].items():
        counts[end.rpartition(", ")[2]] += count
    return counts


if __name__ == "__main__":
    sys.exit(main())
