"""A disk that is really full: a small file system in memory, filled up to so many free pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

from faults.running import Stage, Tally

_PAGE = 4096
_PAGES = 128


def sweep(stage: Stage, folder: Path) -> Tally | None:
    """A run for each number of free pages, up to enough; None where mounting is refused."""
    folder.mkdir()
    size = f"size={_PAGES * _PAGE}"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)], check=False, capture_output=True
    )
    if mounted.returncode:
        return None
    try:
        return _sweep(stage, folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def _sweep(stage: Stage, disk: Path) -> Tally:
    tally = Tally()
    for free in range(_PAGES):
        folder = stage.fresh_in(disk)
        available = os.statvfs(disk).f_bavail
        if available <= free:
            break
        filler = disk / "filler"
        filler.write_bytes(bytes((available - free) * _PAGE))
        ended = stage.run(folder, None)
        filler.unlink()
        hits = ("full disk",) if ended.how == "refused" else ()
        tally.add(stage.check(folder, replace(ended, hits=hits), f"{free} free pages"))
        shutil.rmtree(folder)
        if ended.how == "done":
            break
    else:
        tally.bad.append(f"{stage.scenario.name}: it was never done")
    return tally
