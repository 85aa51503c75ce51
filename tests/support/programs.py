"""Programs in processes of their own: what ends one is a failure of a test, not its end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_program(
    text: str, *, seconds: float | None = 60, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs Python with this package and these tests on its path.

    Args:
        seconds: after which it is killed, and `subprocess.TimeoutExpired` raised.
        environment: variables beside those of this process.
    """
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    return subprocess.run(
        [sys.executable, "-c", text],
        check=False,
        capture_output=True,
        text=True,
        timeout=seconds,
        env={**os.environ, "PYTHONPATH": paths, **environment},
    )
