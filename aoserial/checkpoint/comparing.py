"""Two checkpoints held against each other, tensor by tensor: `compare`.

Torch-free where nothing but structure differs or is looked at; values are compared with torch.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.contents import Prepared, head_of, prepare, upgrader_for
from aoserial.errors import locating
from aoserial.migrations import spell
from aoserial.record import Record
from aoserial.storage import describe
from aoserial.storage.progress import Progress

if TYPE_CHECKING:
    from aoserial.checkpoint.distances import Meant

_PLAIN = "torch.Tensor"


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldDifference:
    """A field that the two have otherwise, spelled out; `-` where one has none."""

    field: str
    left: str
    right: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueDifference:
    """How far two tensors of one shape are apart.

    Attributes:
        elements: of each.
        unequal: how many differ in value; NaN equals NaN, and 0 may be all where only bits differ.
        max_absolute: the largest |left - right|; infinite where just one of the two is NaN or
            infinite, None of a dtype that nothing computes with.
        max_relative: the largest |left - right| / max(|left|, |right|), from 0 to 2 for finite
            values; None as above.
    """

    elements: int
    unequal: int
    max_absolute: float | None
    max_relative: float | None


@dataclass(frozen=True, kw_only=True, slots=True)
class TensorDifference:
    """A tensor that the two checkpoints do not hold alike.

    Attributes:
        name: in both.
        fields: what differs beside values: the type as stored and what it becomes, logical dtype
            and shape, and, if both become one type, attributes and parts of what they become.
        parts: by name, those that are alike but for their bits.
        values: how the tensors they stand for differ; None where these are the same bits.
        note: why values could not be compared; empty where they were.
    """

    name: str
    fields: tuple[FieldDifference, ...] = ()
    parts: Mapping[str, ValueDifference] = field(default_factory=dict)
    values: ValueDifference | None = None
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What `compare` found; true when the two hold the same tensors in the same form.

    Attributes:
        left, right: the paths.
        only_left, only_right: names that the other has not.
        differing: tensors that both have, not alike.
        equal: how many are alike in everything, bit for bit.
    """

    left: str
    right: str
    only_left: tuple[str, ...]
    only_right: tuple[str, ...]
    differing: tuple[TensorDifference, ...]
    equal: int

    def __bool__(self) -> bool:
        return not (self.only_left or self.only_right or self.differing)


def compare(
    left: str | os.PathLike[str],
    right: str | os.PathLike[str],
    *,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Compares the tensors of two checkpoints of any formats, a tensor at a time.

    Old and new forms of a tensor are compared as what they become at the heads of their types: what
    an old file does not spell out is not a difference. That one is stored under another type or
    version is, and then values say whether it still means the same. Other things in the files, as
    metadata, and what is no tensor in a pickle, are not looked at.

    Args:
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all.

    Raises:
        AoserialError: whatever `open` raises, of either.
    """
    upgrader = upgrader_for(assume)
    with ExitStack() as stack:
        sides: list[_Side] = []
        for path in (left, right):
            file = stack.enter_context(open_archive(path))
            with locating(file=os.fspath(path)):
                sides.append(_Side(file, prepare(file.catalog, upgrader)))
        here, there = sides
        names = [name for name in here.homes if name in there.homes]
        found = _Pairs(here, there).differences(names, progress)
        differing = tuple(one for one in found if one is not None)
        return Comparison(
            left=os.fspath(left),
            right=os.fspath(right),
            only_left=tuple(name for name in here.homes if name not in there.homes),
            only_right=tuple(name for name in there.homes if name not in here.homes),
            differing=differing,
            equal=len(names) - len(differing),
        )


class _Side:
    """One of the two files.

    Attributes:
        homes: name → the name its tensor lies under, which is another where it is tied.
        records: name → its group and the keys of its parts.
    """

    def __init__(self, file: Archive, prepared: list[Prepared]) -> None:
        self.file = file
        self.records = {
            name: (one, keys) for one in prepared for name, keys in one.group.members.items()
        }
        self.plain = file.catalog.plain
        self.homes = {name: name for name in (*self.records, *self.plain)} | file.catalog.ties

    def nbytes(self, home: str) -> int:
        if home in self.records:
            return self.records[home][0].group.template.nbytes
        return self.file.parts[self.plain[home]].nbytes

    def group(self, home: str) -> Prepared | None:
        return self.records[home][0] if home in self.records else None

    def meant(self, home: str) -> Meant:
        """The tensor as what its values can be had from."""
        from aoserial.checkpoint.distances import Meant  # imports torch

        if home in self.plain:
            return Meant.plain(self.file.parts[self.plain[home]])
        return Meant.of(self.file, *self.records[home])

    def facts(self, home: str) -> dict[str, str]:
        """What tells the tensor's kind, spelled out."""
        one = self.group(home)
        if one is None:
            part = self.file.parts[self.plain[home]]
            return {"type": _PLAIN, "dtype": part.dtype, "shape": str(list(part.shape))}
        stored, head = one.group.template, head_of(one)
        kind = spell((stored.type, stored.version))
        return {"type": kind, "dtype": head.dtype, "shape": str(list(head.shape))}


class _Pairs:
    """The tensors that both sides have."""

    def __init__(self, left: _Side, right: _Side) -> None:
        self._left, self._right = left, right
        self._fields: dict[object, tuple[FieldDifference, ...]] = {}
        self._seen: dict[tuple[str, str], TensorDifference | None] = {}

    def differences(
        self, names: list[str], progress: Progress | None
    ) -> Iterator[TensorDifference | None]:
        """One for each name, in order; None for equal tensors. Tied tensors are read once."""
        pairs = {name: (self._left.homes[name], self._right.homes[name]) for name in names}
        done, total = 0, sum(self._left.nbytes(home) for home, _ in {*pairs.values()})
        ties = _tied(self._left, pairs), _tied(self._right, pairs)
        for name, pair in pairs.items():
            if pair not in self._seen:
                self._seen[pair] = self._difference(*pair)
                done += self._left.nbytes(pair[0])
                if progress is not None:
                    progress(done, total)
            yield _with_ties(name, self._seen[pair], ties[0].get(name), ties[1].get(name))

    def _difference(self, mine: str, theirs: str) -> TensorDifference | None:
        from aoserial.checkpoint.distances import difference  # imports torch

        left, right = self._left, self._right
        fields = self._fields_of(mine, theirs)
        with locating(name=mine):
            found = difference(left.meant(mine), right.meant(theirs), alike=not fields)
        if found is None and not fields:
            return None
        return replace(found or TensorDifference(name=mine), name=mine, fields=fields)

    def _fields_of(self, mine: str, theirs: str) -> tuple[FieldDifference, ...]:
        """Worked out once for all records of a pair of groups."""
        one, other = self._left.group(mine), self._right.group(theirs)
        if one is None or other is None:
            return tuple(_unequal(self._left.facts(mine), self._right.facts(theirs)))
        key = (id(one), id(other))
        if key not in self._fields:
            facts = self._left.facts(mine), self._right.facts(theirs)
            heads = head_of(one), head_of(other)
            become = [spell((head.type, head.version)) for head in heads]
            if become[0] == become[1]:
                facts = facts[0] | _details(heads[0]), facts[1] | _details(heads[1])
            else:
                facts = facts[0] | {"becomes": become[0]}, facts[1] | {"becomes": become[1]}
            self._fields[key] = tuple(_unequal(*facts))
        return self._fields[key]


def _details(record: Record) -> dict[str, str]:
    # repr, since 1, 1.0 and True are equal and are not the same attribute
    attributes = {f"attributes.{name}": repr(value) for name, value in record.attributes.items()}
    return attributes | {f"parts.{name}": describe(part) for name, part in record.parts.items()}


def _unequal(left: dict[str, str], right: dict[str, str]) -> Iterator[FieldDifference]:
    for name in {**left, **right}:
        mine, theirs = left.get(name, "-"), right.get(name, "-")
        if mine != theirs:
            yield FieldDifference(field=name, left=mine, right=theirs)


def _tied(side: _Side, names: Mapping[str, object]) -> dict[str, str]:
    """name → the others among `names` that share its tensor, spelled out."""
    sharing: dict[str, list[str]] = {}
    for name in names:
        sharing.setdefault(side.homes[name], []).append(name)
    return {
        name: ", ".join(sorted(other for other in group if other != name))
        for group in sharing.values()
        if len(group) > 1
        for name in group
    }


def _with_ties(
    name: str, found: TensorDifference | None, mine: str | None, theirs: str | None
) -> TensorDifference | None:
    """The difference under one of the names of a tensor, with what it shares that tensor with."""
    tie = FieldDifference(field="tied with", left=mine or "-", right=theirs or "-")
    tied = (tie,) if mine != theirs else ()
    if found is None:
        return TensorDifference(name=name, fields=tied) if tied else None
    return replace(found, name=name, fields=(*found.fields, *tied))
