"""The tensors of a pickle as a catalog. Torch-free.

Subclasses become *raw records*: the type is `pickle.` and the class's path, the version 1, shape
and dtype what the wrapper stood for, and the fields as `walk` has them. Who knows the class makes
more of it. Our own tensors (`aoserial._rebuild`) become the records that they were.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from operator import is_
from typing import Any

from aoserial.errors import AoserialError, CollisionError, EnvelopeError, raise_all
from aoserial.record.catalog import Catalog, Group, Signature, template
from aoserial.record.pickled.alike import likeness
from aoserial.record.pickled.own import own_record
from aoserial.record.pickled.walk import Walk, kind_of, unwrapped
from aoserial.schema import FrozenMap
from aoserial.storage import Part, Shape
from aoserial.storage.pickle import ArrayPart, Rebuilt, StoragePart


@dataclass(frozen=True, kw_only=True)
class Pickled:
    """What the tensors of a pickle are.

    Attributes:
        catalog: their records and names; its keys are those of `parts`.
        parts: every plain tensor, alone or inside another.
        values: name → the value in the tree, of every tensor.
        notes: what was found and has no place among the records.
    """

    catalog: Catalog
    parts: dict[str, Part] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Raw:
    """One tensor that is not plain: what a group's template is made of, and its parts."""

    type: str
    version: int
    fingerprint: str | None
    shape: Shape
    dtype: str
    attributes: FrozenMap
    parts: dict[str, Part]


def decode_pickle(tensors: Iterable[tuple[str, Any]]) -> Pickled:
    """The catalog of the named tensors of a pickle.

    Tensors with the same place in the same storage are tied, and so is an object that is in the
    tree twice.

    Raises:
        CollisionError: two tensors whose dotted names are the same.
        EnvelopeError: a tensor of ours that we never wrote so.
        LimitError: a tensor with attributes beyond number.
    """
    found = Pickled(catalog=Catalog(layout="pickle"))
    catalog, sorter = found.catalog, _Sorter()
    homes: dict[object, str] = {}
    faults = []
    for name, value in tensors:
        if type(value) is ArrayPart:
            continue  # plain data of NumPy's, in the tree
        if name in found.values:
            fault = CollisionError("is the dotted name of two tensors of the file")
            faults.append(fault.locate(name=name))
            continue
        found.values[name] = value
        data = unwrapped(value)
        plain = type(data) is StoragePart
        identity = (data.place, type(value), value.requires_grad) if plain else id(value)
        home = homes.setdefault(identity, name)
        if home != name:
            catalog.ties[name] = home
        elif plain:
            found.parts[name] = data
            catalog.plain[name] = name
        else:
            try:
                sorter.add(name, data, found.parts)
            except AoserialError as error:  # `locating` for each of thousands takes long
                error.locate(name=name)
                raise
    catalog.groups.extend(sorter.groups.values())
    raise_all(f"{len(faults)} names stand for two tensors", faults)
    return found


class _Sorter:
    """Puts tensors into groups. What many have in common is worked out once."""

    def __init__(self) -> None:
        self.groups: dict[object, Group] = {}
        self._alike: dict[object, tuple[Group, list[str]]] = {}

    def add(self, name: str, value: Any, parts: dict[str, Part]) -> None:
        """Files a tensor that is not plain; its parts get keys that no name of the tree has."""
        like = likeness(value)
        known = self._alike.get(like[0]) if like is not None else None
        if like is None or known is None:
            raw = _raw(value)
            group = self._group(raw)
            suffixes, held = ["\0" + part for part in raw.parts], list(raw.parts.values())
            if like is not None and all(map(is_, held, like[1])) and len(held) == len(like[1]):
                self._alike[like[0]] = group, suffixes
        else:
            (group, suffixes), held = known, [*like[1]]
        keys = tuple([name + suffix for suffix in suffixes])
        group.members[name] = keys
        parts.update(zip(keys, held, strict=True))

    def _group(self, raw: _Raw) -> Group:
        signature: Signature = tuple([(part.dtype, part.shape) for part in raw.parts.values()])
        # repr, since 1, 1.0 and True are equal and are not the same attribute
        kind = (raw.type, raw.version, raw.fingerprint, raw.shape, raw.dtype,
                repr(raw.attributes), tuple(raw.parts), signature)  # fmt: skip
        group = self.groups.get(kind)
        if group is None:
            record = template(
                type=raw.type,
                version=raw.version,
                shape=raw.shape,
                dtype=raw.dtype,
                attributes=raw.attributes,
                parts=dict(zip(raw.parts, signature, strict=True)),
            )
            group = Group(template=record, fingerprint=raw.fingerprint, members={})
            self.groups[kind] = group
        return group


def _raw(value: Any) -> _Raw:
    if type(value) is Rebuilt:
        return _ours(value)
    walk = Walk()
    fields = walk.inside(value, "")
    kind, shape, dtype = kind_of(value)
    return _Raw(kind, 1, None, shape, dtype, FrozenMap(fields), walk.parts)


def _ours(value: Rebuilt) -> _Raw:
    *rest, parts = value.arguments or (None,)
    if len(rest) != 4:
        raise EnvelopeError(f"a pickled aoserial tensor has {len(rest) + 3} arguments, not 7")
    own = own_record(value.type, value.version, *rest)
    held: dict[str, Part] = dict(own.checked(parts, StoragePart))
    return _Raw(own.type_id, own.version, own.proof, own.shape, own.dtype, own.attributes, held)
