"""Times of things that take turns, so that a busy minute of a shared machine falls on all alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Turns(Generic[T]):
    """What some named things took and gave.

    Attributes:
        seconds: of each, one a round.
        results: of the last round.
    """

    seconds: dict[str, list[float]]
    results: dict[str, T]

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, base: str) -> float:
        """The median of the rounds' ratios: what is asked for, to `base`."""
        pairs = zip(self.seconds[name], self.seconds[base], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


def take_turns(work: Mapping[str, Callable[[], T]], rounds: int) -> Turns[T]:
    """Runs all one after the other, `rounds` times, after a first round that does not count."""
    turns: Turns[T] = Turns({name: [] for name in work}, {})
    for number in range(rounds + 1):
        for name, run in work.items():
            start = time.perf_counter()
            turns.results[name] = run()
            if number:
                turns.seconds[name].append(time.perf_counter() - start)
    return turns
