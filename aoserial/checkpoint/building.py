"""From prepared groups to live tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from aoserial.checkpoint.archives import Archive, Mark
from aoserial.checkpoint.contents import Prepared
from aoserial.errors import locating
from aoserial.migrations import bind
from aoserial.record import Record
from aoserial.storage import BY_NAME, Part, TensorPart
from aoserial.tensors import InertTensor, builder

Loaded = torch.Tensor | InertTensor


def build_group(
    file: Archive, one: Prepared, members: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Loaded]]:
    """The live tensors of some members of a group, by name."""
    for name, built in _built(file, one, members):
        mark = file.marks.get(name)
        yield name, built if mark is None else marked(built, mark)


def marked(tensor: Loaded, mark: Mark) -> Loaded:
    """A tensor as the Parameter it was, or with its requires_grad; an inert one is as it is."""
    if isinstance(tensor, InertTensor):
        return tensor
    trains = mark.requires_grad and (tensor.is_floating_point() or tensor.is_complex())
    if mark.parameter:
        return torch.nn.Parameter(tensor, requires_grad=trains)
    return tensor.requires_grad_(trains)


def _built(
    file: Archive, one: Prepared, members: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[str, Loaded]]:
    if one.outcome is None:
        for name, keys in members.items():
            yield (
                name,
                InertTensor(
                    _in_memory(file, one, keys),
                    fingerprint=one.group.fingerprint,
                    reason=one.reason,
                    pickled=file.value(name),
                ),
            )
        return
    build = builder(one.outcome.record)
    places = _places(one)
    if places is None:
        yield from _build_derived(file, one, members, build)
        return
    keys_in_order = [keys[place] for keys in members.values() for place in places]
    tensors = iter(file.tensors(keys_in_order))
    for name, parts in zip(members, zip(*[tensors] * len(places), strict=True), strict=True):
        yield name, build(parts)


def stored_record(file: Archive, one: Prepared, keys: Sequence[str]) -> Record:
    """One record of a group as stored, its parts those of the file."""
    return bind(one.group.template, _fill(file, one, keys))


def _in_memory(file: Archive, one: Prepared, keys: Sequence[str]) -> Record:
    """The record as stored, its parts independent of the open file."""
    record = stored_record(file, one, keys)
    return record.put(
        **{
            name: TensorPart(part.read())
            for name, part in record.parts.items()
            if BY_NAME[part.dtype].in_torch
        }
    )


def migrated_record(file: Archive, one: Prepared, keys: Sequence[str]) -> Record:
    """One record of a group at the head of its type (as stored, if its type is not known)."""
    record = one.outcome.record if one.outcome else one.group.template
    return bind(record, _fill(file, one, keys))


def _fill(file: Archive, one: Prepared, keys: Sequence[str]) -> dict[Part, Part]:
    slots = one.group.template.parts.values()
    return {slot: file.parts[key] for slot, key in zip(slots, keys, strict=True)}


def _places(one: Prepared) -> list[int] | None:
    """Where in a member's keys each part of the outcome lies; None if a part is derived."""
    assert one.outcome is not None
    slots = list(one.group.template.parts.values())
    places = []
    for part in one.outcome.record.parts.values():
        if part not in slots:
            return None
        places.append(slots.index(part))
    return places


def _build_derived(
    file: Archive,
    one: Prepared,
    members: Mapping[str, tuple[str, ...]],
    build: Callable[[Sequence[torch.Tensor]], torch.Tensor],
) -> Iterator[tuple[str, Loaded]]:
    for name, keys in members.items():
        with locating(name=name):
            record = migrated_record(file, one, keys)
            yield name, build([part.read() for part in record.parts.values()])
