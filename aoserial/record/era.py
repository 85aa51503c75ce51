"""The releases among which a record was written that does not say which. Torch-free."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace


@dataclass(frozen=True, kw_only=True, slots=True)
class Era:
    """A range of a program's releases, and why it is thought to be that one.

    Attributes:
        program: which wrote the record.
        first, last: its releases, both included, as `0.7`; empty where there is no bound.
        evidence: what says so, each a few words.
    """

    program: str
    first: str = ""
    last: str = ""
    evidence: tuple[str, ...] = ()

    @property
    def releases(self) -> str:
        """`0.7`, `0.7 to 0.11`, `0.14 and later`, `up to 0.4`, or `any release`."""
        match bool(self.first), bool(self.last):
            case True, True:
                return self.first if self.first == self.last else f"{self.first} to {self.last}"
            case True, False:
                return f"{self.first} and later"
            case False, True:
                return f"up to {self.last}"
            case _:
                return "any release"

    def __str__(self) -> str:
        return f"{self.program} {self.releases}"

    def __contains__(self, release: str) -> bool:
        """Whether a release, `0.7` or `0.7.1`, is one of these."""
        number = _number(release)[:2]
        return _first(self.first) <= number <= _last(self.last)

    def __and__(self, other: Era) -> Era | None:
        """What both allow, if anything; evidence that narrows nothing is left out."""
        first = max(self.first, other.first, key=_first)
        last = min(self.last, other.last, key=_last)
        if self.program != other.program or _first(first) > _last(last):
            return None
        if (first, last) == (self.first, self.last):
            return self
        new = tuple(words for words in other.evidence if words not in self.evidence)
        return replace(self, first=first, last=last, evidence=(*self.evidence, *new))


def shared(eras: Iterable[Era | None]) -> Era | None:
    """What all that are known allow; None where none is, or where they contradict each other."""
    known = [era for era in eras if era is not None]
    if not known:
        return None
    met: Era | None = known[0]
    for era in known[1:]:
        met = met & era if met is not None else None
    return met


def spanned(eras: Iterable[Era]) -> Era | None:
    """From the first release of any to the last of any, of one program; None of none."""
    all_of = list(eras)
    if not all_of:
        return None
    return Era(
        program=all_of[0].program,
        first=min((era.first for era in all_of), key=_first),
        last=max((era.last for era in all_of), key=_last),
    )


def _number(release: str) -> tuple[float, ...]:
    return tuple(map(int, release.split(".")))


def _first(release: str) -> tuple[float, ...]:
    return _number(release) if release else (0,)


def _last(release: str) -> tuple[float, ...]:
    return _number(release) if release else (math.inf,)
