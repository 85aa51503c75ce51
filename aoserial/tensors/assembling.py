"""Many live tensors at once: the records of a group, from plain tensors by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from aoserial.errors import UnsupportedTensorError, locating
from aoserial.migrations import Outcome, bind
from aoserial.record import Group
from aoserial.storage import Part, TensorPart
from aoserial.storage.safetensors import Entry
from aoserial.tensors.convert import builder
from aoserial.tensors.inert import InertTensor


def tensor_of(part: Part) -> torch.Tensor:
    """The tensor that a part is of, itself and no copy; of any other part what it reads."""
    return part.tensor if isinstance(part, TensorPart) else part.read()


def entries_of(tensors: Mapping[str, torch.Tensor]) -> dict[str, Entry]:
    """Plain tensors as the header of a file would have them, but for where they lie.

    Raises:
        UnsupportedTensorError: something that is no tensor.
    """
    entries: dict[str, Entry] = {}
    for key, tensor in tensors.items():
        with locating(name=key):
            if not isinstance(tensor, torch.Tensor):
                raise UnsupportedTensorError(f"is a {type(tensor).__name__}, not a tensor")
            part = TensorPart(tensor)
        entries[key] = (part.dtype, part.shape, 0, part.nbytes)
    return entries


def assemble(
    group: Group,
    outcome: Outcome | None,
    tensors: Mapping[str, torch.Tensor],
    *,
    reason: str = "",
) -> Iterator[tuple[str, torch.Tensor | InertTensor]]:
    """The tensors of a group, by name, over the plain tensors they are made of.

    Args:
        outcome: what the group's records become; None leaves them inert.
        tensors: at least those that the group's members list.
        reason: why they stay inert, as of an `InertTensor`.
    """
    slots = group.template.parts.values()
    build = builder(outcome.record) if outcome else None
    for name, keys in group.members.items():
        leaves = dict(zip(slots, (TensorPart(tensors[key]) for key in keys), strict=True))
        with locating(name=name):
            if outcome is None or build is None:
                record = bind(group.template, leaves)
                yield name, InertTensor(record, fingerprint=group.fingerprint, reason=reason)
            else:
                record = bind(outcome.record, leaves)
                yield name, build([part.read() for part in record.parts.values()])
