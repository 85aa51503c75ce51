"""What the gate finds: a rule that is broken, where, and the smallest record that shows it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from aoserial.gate.rules import RULES, Direction, Mode, Rule


@dataclass(frozen=True, kw_only=True, slots=True)
class Witness:
    """The smallest record that a change breaks.

    Attributes:
        direction: `read` (an old record, under new code) or `write` (the reverse).
        record: in its JSON form; of an enum, the symbol's.
        written_with: the fingerprint that stands beside it in a file.
        outcome: what the reader makes of it: its error, or the value it takes silently.
    """

    direction: Direction
    record: dict[str, Any]
    written_with: str | None
    outcome: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One broken rule.

    Attributes:
        rule: its id.
        subject: what it is about: `acme.Int4Tensor@1`, an enum's id, a module, a git ref.
        field: of the type, empty when it is about the whole.
        message: what was found and what was expected.
        path: of the document, for people and for annotations.
    """

    rule: str
    subject: str
    field: str = ""
    message: str
    path: str = ""
    witness: Witness | None = None

    @property
    def row(self) -> Rule:
        return RULES[self.rule]

    def __str__(self) -> str:
        where = f"{self.subject}: {self.field}" if self.field else self.subject
        return f"{where}: {self.rule}: {self.message}"


@dataclass(kw_only=True)
class Report:
    """The outcome of a check.

    Attributes:
        findings: in the order of the types.
        checked: the documents that were compared with the code.
        unchecked: what was not looked at, and why.
    """

    findings: list[Finding] = field(default_factory=list)
    checked: int = 0
    unchecked: list[str] = field(default_factory=list)

    def add(self, findings: Iterable[Finding], mode: Mode) -> None:
        """Takes the findings that count in `mode`, each once."""
        known = {(one.rule, one.subject, one.field) for one in self.findings}
        for one in findings:
            if one.row.counts_in(mode) and (one.rule, one.subject, one.field) not in known:
                known.add((one.rule, one.subject, one.field))
                self.findings.append(one)

    @property
    def failed(self) -> bool:
        """Whether something kept the gate from looking."""
        return any(one.row.is_error for one in self.findings)

    def __bool__(self) -> bool:
        """Whether it is clean."""
        return not self.findings
