"""Threads that each stream their own rows of a weight, and meet once, at the end.

torch's operators share their work out one by one, and each waits for all of its threads. A stream
is some hundred operators, so where another program holds a core for a moment, each of these waits:
a layer of 10 ms then takes a second. In these threads an operator runs on the thread that calls it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Lock

import torch

_MOST = 16  # threads; they take turns in Python, for some 5 of every 60 µs


class Workers:
    """As many threads as torch was set to use when they were first needed."""

    def __init__(self) -> None:
        self._forget()
        os.register_at_fork(after_in_child=self._forget)  # a fork has none of its parent's threads

    def run(self, work: Callable[[int, int], None], ranges: Iterable[tuple[int, int]]) -> None:
        """Calls `work` for each range, and returns when all are done.

        In inference mode, which is how these threads may write to tensors of either kind.
        """
        pool = self._started()
        for done in [pool.submit(_in_inference_mode, work, *each) for each in ranges]:
            done.result()

    def _forget(self) -> None:
        self._lock = Lock()
        self._pool: ThreadPoolExecutor | None = None

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                threads = torch.get_num_threads()
                count = min(_MOST, threads)
                self._pool = ThreadPoolExecutor(count, "aoserial")
                together = Barrier(count)  # so that each of the threads is one
                for made in [self._pool.submit(_alone, together) for _ in range(count)]:
                    made.result()
                torch.set_num_threads(threads)  # of threads to come, for which the last call counts
            return self._pool


WORKERS = Workers()


def _alone(together: Barrier) -> None:
    """Has operators that are called on this thread run on it alone."""
    together.wait()
    torch.get_num_threads()  # a thread's first call would undo what was set before it
    torch.set_num_threads(1)
    together.wait()


def _in_inference_mode(work: Callable[[int, int], None], start: int, stop: int) -> None:
    with torch.inference_mode():
        work(start, stop)
