"""Opens one file and reports, as JSON, how that ended and what it cost. Run in its own process."""

from __future__ import annotations

import json
import resource
import sys
import time

from aoserial.errors import AoserialError, LimitError
from aoserial.storage.pickle import Limits, PickleFile, named_tensors


def main(path: str) -> dict[str, object]:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        with PickleFile.open(path, mapped=False) as file:
            outcome = "loads"
            for _ in named_tensors(file.tree, Limits(tensors=100_000)):
                pass
    except LimitError as error:
        outcome = error.limit
    except AoserialError as error:
        outcome = type(error).__name__
    return {
        "outcome": outcome,
        "seconds": time.process_time() - start,
        "kilobytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
