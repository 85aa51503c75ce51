"""Many live tensors at once: the records of a group, from plain tensors by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from aoserial.errors import locating
from aoserial.migrations import Outcome, bind
from aoserial.record import Group
from aoserial.storage import TensorPart
from aoserial.storage.collecting import collector_paused
from aoserial.tensors.convert import builder
from aoserial.tensors.inert import InertTensor

__all__ = ["assemble", "collector_paused"]


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
