"""How long does the whole process `aoserial schema check` take, on this repository's own types?

There is no peer that does this; the bar is absolute, 1 s, as a hook that runs before every commit
must not be felt. A Python that starts and does nothing is measured beside it, to judge the machine,
and so is the processor time, which other programs on it do not lengthen as much.
"""

from __future__ import annotations

import resource
import shutil
import sys
from pathlib import Path

from benchmarks.inspect_process import seconds

BAR = 1.0  # seconds
RUNS = 7


def processor_seconds() -> float:
    """Of all processes started so far and ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    command = shutil.which("aoserial", path=str(Path(sys.executable).parent))
    assert command, "the aoserial script is not installed beside this Python"
    bare = seconds([sys.executable, "-c", "pass"])
    print(f"{'a Python that does nothing':<58} {bare:8.3f} s")
    for arguments in ([], ["--mode", "full", "--against", "HEAD"]):
        before = processor_seconds()
        spent = seconds([command, "schema", "check", *arguments], RUNS)
        used = (processor_seconds() - before) / (RUNS + 1)  # one run warms up
        verdict = "meets" if spent <= BAR else "MISSES"
        question = " ".join(["aoserial schema check", *arguments])
        print(f"{question:<58} {spent:8.3f} s  bar ≤ {BAR} s  {verdict}, {used:.3f} s of processor")


if __name__ == "__main__":
    main()
