"""From prepared groups to live tensors."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

import torch

from aoserial.checkpoint.archives import Archive
from aoserial.checkpoint.contents import Prepared
from aoserial.checkpoint.trees import live_tree
from aoserial.errors import locating
from aoserial.migrations import bind
from aoserial.record import Record
from aoserial.storage import BY_NAME, Part, TensorPart
from aoserial.storage.progress import SILENT, Tally
from aoserial.tensors import InertTensor, Loaded, builder
from aoserial.tensors.convert import Build


def read_state(
    file: Archive,
    prepared: Iterable[Prepared],
    wanted: Collection[str] | None = None,
    tally: Tally = SILENT,
    *,
    make: Callable[[Record], Build] = builder,
    device: str | torch.device = "cpu",
) -> dict[str, Loaded]:
    """The tensors of a file by name; what is tied in it is one object.

    Args:
        make: gives what makes the tensors of a group, of what its records became.
        wanted: the names to read; all if not given.
        tally: counts what was read.
        device: where tensors go; names that are tied stay so.
    """
    state: dict[str, Loaded] = {}
    catalog = file.catalog
    needed = None
    if wanted is not None:
        needed = {*wanted, *(catalog.ties[name] for name in wanted if name in catalog.ties)}
    for one in prepared:
        members = one.group.members
        if needed is not None:
            members = {name: keys for name, keys in members.items() if name in needed}
        built = build_group(file, one, members, make, device)
        state.update(_counted(file, built, members, tally) if tally.heard else built)
    names = [name for name in catalog.plain if needed is None or name in needed]
    keys = {name: (catalog.plain[name],) for name in names}
    plain: Iterable[tuple[str, torch.Tensor]] = zip(
        names, file.plain([catalog.plain[name] for name in names]), strict=True
    )
    if file.marks or str(device) != "cpu":
        plain = ((name, _placed(file, name, tensor, device)) for name, tensor in plain)
    state.update(_counted(file, plain, keys, tally) if tally.heard else plain)
    for name, target in catalog.ties.items():
        if wanted is None or name in wanted:
            state[name] = state[target]
    if wanted is not None:  # targets of ties were read for them
        state = {name: state[name] for name in wanted}
    elif file.values:
        state = {name: state[name] for name in file.values}  # in the order of the tree
    tally.end()
    return state


def _counted(
    file: Archive,
    built: Iterable[tuple[str, Loaded]],
    members: Mapping[str, tuple[str, ...]],
    tally: Tally,
) -> Iterator[tuple[str, Loaded]]:
    """What was built, its parts counted as read; a record is where its first part is."""
    for name, tensor in built:
        keys = members[name]
        tally.begin(file.shard_of(keys[0]) if keys else None)
        tally.add(sum(file.parts[key].nbytes for key in keys))
        yield name, tensor


def read_plain(file: Archive, name: str) -> torch.Tensor:
    """One plain tensor of a file."""
    (tensor,) = file.plain([file.catalog.plain[name]])
    return _placed(file, name, tensor, "cpu")


def _placed(
    file: Archive, name: str, tensor: torch.Tensor, device: str | torch.device
) -> torch.Tensor:
    """The tensor on its device, with what a pickle says of it beside its values."""
    mark = file.marks.get(name)
    tensor = tensor if str(device) == "cpu" else tensor.to(device)
    return tensor if mark is None else mark.put_on(tensor)


def build_group(
    file: Archive,
    one: Prepared,
    members: Mapping[str, tuple[str, ...]],
    make: Callable[[Record], Build] = builder,
    device: str | torch.device = "cpu",
) -> Iterator[tuple[str, Loaded]]:
    """The live tensors of some members of a group, by name."""
    for name, built in _built(file, one, members, make):
        yield name, built if isinstance(built, InertTensor) else _placed(file, name, built, device)


def _built(
    file: Archive,
    one: Prepared,
    members: Mapping[str, tuple[str, ...]],
    make: Callable[[Record], Build],
) -> Iterator[tuple[str, Loaded]]:
    if one.outcome is None:
        for name, keys in members.items():
            yield (
                name,
                InertTensor(
                    _in_memory(file, one, keys),
                    fingerprint=one.group.fingerprint,
                    reason=one.reason,
                    pickled=live_tree(file.values[name], {}) if file.values else None,
                ),
            )
        return
    build = make(one.outcome.record)
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
