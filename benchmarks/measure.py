"""Measuring against a peer in the same run.

Machines are shared and noisy, so a figure is a ratio: ours and the peer's take turns, and the
median of the pairs' ratios is what counts. Absolute times are printed for orientation only.
"""

from __future__ import annotations

import gc
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

MEMORY_BAR = 64 << 20


def compare(
    question: str,
    ours: Callable[[], object],
    peer: Callable[[], object],
    *,
    at_most: float | None = None,
    at_least_faster: float | None = None,
    runs: int = 7,
) -> None:
    """Runs both in turn, one warm-up first, and prints the medians and that of the ratios.

    Args:
        at_most: the bar for ours / peer.
        at_least_faster: the bar for peer / ours.
    """
    timed(ours)
    timed(peer)
    pairs = [(timed(ours), timed(peer)) for _ in range(runs)]
    ratio = statistics.median(mine / theirs for mine, theirs in pairs)
    if at_least_faster is not None:
        bar, meets = f"≥ {at_least_faster:g} ×", 1 / ratio >= at_least_faster
    else:
        assert at_most is not None
        bar, meets = f"≤ {at_most:g}", ratio <= at_most
    mine = statistics.median(mine for mine, _ in pairs)
    theirs = statistics.median(theirs for _, theirs in pairs)
    print(
        f"{question:<58} ours {mine:8.3f} s  peer {theirs:8.3f} s  "
        f"ratio {ratio:6.3f}  bar {bar:<8} {'meets' if meets else 'MISSES'}",
        flush=True,
    )


def extra_memory(what: str, module: str, path: Path) -> None:
    """Prints the bytes of memory that `python -m MODULE PATH` says it took, beside the bar."""
    command = [sys.executable, "-m", module, str(path)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    extra = int(done.stdout)
    verdict = "meets" if extra <= MEMORY_BAR else "MISSES"
    bar = f"bar ≤ {MEMORY_BAR >> 20} MiB"
    print(f"{'  ' + what:<58} {extra / 2**20:6.1f} MiB  {bar}  {verdict}", flush=True)


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


def timed(work: Callable[[], object]) -> float:
    """Seconds that one call takes, but not what it takes to free its result."""
    gc.collect()
    start = time.perf_counter()
    result = work()
    seconds = time.perf_counter() - start
    del result
    return seconds
