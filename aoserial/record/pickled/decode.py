"""The tensors of a pickle as a catalog. Torch-free.

Subclasses become *raw records*: the type is `pickle.` and the class's path, the version 1, shape
and dtype what the wrapper stood for, and the fields as `walk` has them. Who knows the class makes
more of it. Our own tensors (`aoserial._rebuild`) become the records that they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from aoserial.errors import CollisionError, EnvelopeError, locating, raise_all
from aoserial.record.catalog import Catalog, Group, Signature, template
from aoserial.record.fields import OBJECT, expect, lengths, parse_object, strings
from aoserial.record.pickled.walk import Walk, kind_of, unwrapped
from aoserial.schema import FrozenMap
from aoserial.schema.values import check_version, decode
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
    catalog, reader = found.catalog, _Reader()
    groups: dict[object, Group] = {}
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
            with locating(name=name):
                raw = reader.read(data)
            _file(name, raw, groups, found)
    catalog.groups.extend(groups.values())
    raise_all(f"{len(faults)} names stand for two tensors", faults)
    return found


def _file(name: str, raw: _Raw, groups: dict[object, Group], found: Pickled) -> None:
    """Puts a tensor into its group, and its parts under keys that no name of the tree can have."""
    keys = tuple([f"{name}\0{part}" for part in raw.parts])
    found.parts.update(zip(keys, raw.parts.values(), strict=True))
    signature: Signature = tuple([(part.dtype, part.shape) for part in raw.parts.values()])
    # repr, since 1, 1.0 and True are equal and are not the same attribute
    kind = (raw.type, raw.version, raw.fingerprint, raw.shape, raw.dtype, repr(raw.attributes),
            tuple(raw.parts), signature)  # fmt: skip
    group = groups.get(kind)
    if group is None:
        record = template(
            type=raw.type,
            version=raw.version,
            shape=raw.shape,
            dtype=raw.dtype,
            attributes=raw.attributes,
            parts=dict(zip(raw.parts, signature, strict=True)),
        )
        group = groups[kind] = Group(template=record, fingerprint=raw.fingerprint, members={})
    group.members[name] = keys


def own_record(
    arguments: tuple[Any, ...], parts: Mapping[str, Part]
) -> tuple[str, int, str, str, Shape, FrozenMap]:
    """What `aoserial._rebuild` was called with, checked: all but the parts.

    Args:
        arguments: type id, version, fingerprint, dtype, shape, attributes as JSON.
        parts: of whose names alone something is asked: that they are texts.

    Returns:
        The same, the attributes as data.

    Raises:
        EnvelopeError: arguments of other kinds.
    """
    if len(arguments) != 6:
        raise EnvelopeError(f"{_WHAT} has {len(arguments) + 1} arguments, expected 7")
    kind, version, proof, dtype, shape, attributes = arguments
    strings(list(parts), f"the names of the parts of {_WHAT}")
    values = parse_object(expect(attributes, str, f"the attributes of {_WHAT}"), _WHAT)
    return (
        expect(kind, str, f"the type of {_WHAT}"),
        check_version(version),
        expect(proof, str, f"the proof of {_WHAT}"),
        expect(dtype, str, f"the dtype of {_WHAT}"),
        lengths(list(shape), f"the shape of {_WHAT}"),
        FrozenMap({name: decode(value) for name, value in values.items()}),
    )


_WHAT = "a pickled aoserial tensor"


class _Reader:
    """Makes raw records; what many tensors have in common is parsed once."""

    def __init__(self) -> None:
        self._heads: dict[object, tuple[str, int, str, str, Shape, FrozenMap]] = {}

    def read(self, value: Any) -> _Raw:
        if type(value) is Rebuilt:
            return self._own(value)
        walk = Walk()
        fields = walk.inside(value, "")
        kind, shape, dtype = kind_of(value)
        return _Raw(kind, 1, None, shape, dtype, FrozenMap(fields), walk.parts)

    def _own(self, value: Rebuilt) -> _Raw:
        *rest, held = value.arguments or (None,)
        head = (value.type, value.version, *rest)
        parts = expect(held, OBJECT, f"the parts of {_WHAT}")
        for name, part in parts.items():
            if type(part) is not StoragePart:
                raise EnvelopeError(f"part {name!r:.80} of {_WHAT} is no plain tensor")
        key = repr(head) if len(repr(head)) < 4096 else id(value)
        if key not in self._heads:
            self._heads[key] = own_record(head, parts)
        type_id, version, proof, dtype, shape, attributes = self._heads[key]
        return _Raw(type_id, version, proof, shape, dtype, attributes, dict(parts))
