"""Many live tensors at once: the records of a group, from plain tensors by key."""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch

from aoserial.errors import locating
from aoserial.migrations import Outcome, bind
from aoserial.record import Group
from aoserial.storage import TensorPart
from aoserial.tensors.convert import builder
from aoserial.tensors.inert import InertTensor


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pauses the collector, which would scan every tensor built so far again and again."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def assemble(
    group: Group, outcome: Outcome | None, tensors: Mapping[str, torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor | InertTensor]]:
    """The tensors of a group, by name, over the plain tensors they are made of.

    Args:
        outcome: what the group's records become; None leaves them inert.
        tensors: at least those that the group's members list.
    """
    slots = group.template.parts.values()
    build = builder(outcome.record) if outcome else None
    for name, keys in group.members.items():
        leaves = dict(zip(slots, (TensorPart(tensors[key]) for key in keys), strict=True))
        with locating(name=name):
            if outcome is None or build is None:
                record = bind(group.template, leaves)
                yield name, InertTensor(record, fingerprint=group.fingerprint)
            else:
                record = bind(outcome.record, leaves)
                yield name, build([part.read() for part in record.parts.values()])
