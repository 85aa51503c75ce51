"""How long something takes, for tests that it grows no faster than what it is given."""

from __future__ import annotations

import time
from collections.abc import Callable


def seconds(function: Callable[[], object]) -> float:
    """Processor time of this process, whatever else the machine does; the best of three runs."""
    found = []
    for _ in range(3):
        began = time.process_time()
        function()
        found.append(time.process_time() - began)
    return min(found)
