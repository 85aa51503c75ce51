"""How many threads are to share a work of products.c."""

from __future__ import annotations

import os

import torch

_SMALL = 1 << 18  # elements below which threads cost more than they save


class _Process:
    """Whether this one is a fork: it has none of its parent's threads, and would wait for them."""

    is_fork = False


os.register_at_fork(after_in_child=lambda: setattr(_Process, "is_fork", True))


def threads(elements: int) -> int:
    """How many are to share the work on so many elements."""
    return 1 if elements < _SMALL or _Process.is_fork else torch.get_num_threads()
