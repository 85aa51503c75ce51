"""Measuring against a peer in the same run.

Machines are shared and noisy, so a figure is a ratio: ours and the peer's take turns, and the
median of the pairs' ratios is what counts. Absolute times are printed for orientation only.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Figure:
    """One row of the table: medians in seconds, and the median of the ratios ours / peer."""

    question: str
    ours: float
    peer: float
    ratio: float
    bar: str
    meets: bool

    def __str__(self) -> str:
        verdict = "meets" if self.meets else "MISSES"
        return (
            f"{self.question:<58} ours {self.ours:8.3f} s  peer {self.peer:8.3f} s  "
            f"ratio {self.ratio:6.3f}  bar {self.bar:<8} {verdict}"
        )


def compare(
    question: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    at_most: float | None = None,
    at_least_faster: float | None = None,
    runs: int = 7,
) -> Figure:
    """Runs both in turn, one warm-up first, and prints the figure.

    Args:
        at_most: the bar for ours / peer.
        at_least_faster: the bar for peer / ours.
    """
    _timed(ours)
    _timed(peer)
    pairs = [(_timed(ours), _timed(peer)) for _ in range(runs)]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    if at_least_faster is not None:
        bar, meets = f"≥ {at_least_faster:g} ×", 1 / ratio >= at_least_faster
    else:
        assert at_most is not None
        bar, meets = f"≤ {at_most:g}", ratio <= at_most
    figure = Figure(
        question,
        statistics.median(mine for mine, _ in pairs),
        statistics.median(theirs for _, theirs in pairs),
        ratio,
        bar,
        meets,
    )
    print(figure, flush=True)
    return figure


def anonymous_bytes() -> int:
    """Anonymous resident memory of this process now."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    line = next(line for line in rollup.splitlines() if line.startswith("Anonymous:"))
    return int(line.split()[1]) * 1024


def peak_bytes() -> int:
    """The largest resident anonymous and file-backed set so far (VmHWM)."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def _timed(work: Callable[[], object]) -> float:
    gc.collect()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds
