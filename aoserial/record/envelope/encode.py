"""Laying a checkpoint out as keyed parts and an envelope. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from aoserial._version import __version__
from aoserial.errors import CollisionError
from aoserial.record.envelope.digest import ZERO_DIGEST, zero_checksums
from aoserial.record.keys import free_key, part_key, strays
from aoserial.record.record import Record
from aoserial.schema import FrozenMap, Registry, fingerprint, without_defaults
from aoserial.schema.values import Json, Nested, Value, encode
from aoserial.storage import Part
from aoserial.storage.safetensors.layout import check_names

ENVELOPE_KEY = "aoserial"
ENVELOPE_VERSION = 1
WRITER = f"aoserial {__version__}"


@dataclass(frozen=True, kw_only=True)
class Stored:
    """A record to be written, with the fingerprint it came with (of a type not known here)."""

    record: Record
    fingerprint: str | None = None


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that goes into a file.

    Attributes:
        records: name → quantized tensor.
        plain: name → plain tensor.
        ties: name → name in `records` or `plain`.
        trail, metadata, extra: as in a `Catalog`.
    """

    records: dict[str, Stored]
    plain: Mapping[str, Part]
    ties: Mapping[str, str]
    trail: list[dict[str, Any]]
    metadata: Mapping[str, str]
    extra: Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """A file laid out: parts by key, and the metadata that says what they are."""

    parts: dict[str, Part]
    metadata: dict[str, str]


def lay_out(contents: Contents, registry: Registry, *, sealed: bool = True) -> Sheet:
    """Gives every part its key and describes the records in an envelope.

    Args:
        sealed: leave places for the checksums and the header's digest, which `seal` fills.

    Raises:
        CollisionError: a record and a plain tensor, or a tie, of one name.
        TensorNameError: a name that no tensor may have, or two that look the same.
    """
    (sheet,) = lay_out_shards(contents, [contents], registry, sealed=sealed)
    return sheet


def lay_out_shards(
    whole: Contents, shards: Iterable[Contents], registry: Registry, *, sealed: bool = True
) -> list[Sheet]:
    """`lay_out` of contents that were divided among files: no two of these have a key in common.

    Args:
        whole: of all files.
        shards: of each file.
    """
    _check_names(whole)
    taken = {*whole.plain, *whole.records, *whole.ties}
    return [_lay_out(shard, whole.records.keys(), taken, registry, sealed) for shard in shards]


def _lay_out(
    contents: Contents,
    named: Collection[str],
    taken: set[str],
    registry: Registry,
    sealed: bool,
) -> Sheet:
    """Lays out one file.

    Args:
        named: the names of all records, also those of other files.
        taken: all keys that are in use; what is given out here comes in.
    """
    kinds = _sort(contents.records, registry)
    parts = dict(contents.plain)
    for kind in kinds:
        for name in kind.names:
            for part_name, part in contents.records[name].record.parts.items():
                key = part_key(name, part_name)
                if key in taken:  # plain tensors keep their names, records give way
                    key = free_key(name, part_name, taken)
                    kind.moved.setdefault(name, {})[part_name] = key
                taken.add(key)
                parts[key] = part
    envelope = _envelope(contents, kinds, named, registry)
    if sealed:
        envelope |= {"header_digest": ZERO_DIGEST, "crc32": zero_checksums(len(parts))}
    metadata = dict(contents.metadata)
    metadata.setdefault("format", "pt")
    metadata[ENVELOPE_KEY] = json.dumps(
        envelope, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return Sheet(parts=parts, metadata=metadata)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Kind:
    """Records that agree in everything but their names, and so share an entry of the envelope.

    Attributes:
        record: any of them, without the attributes that are as their absence means.
        fingerprint: of its schema; the one it came with when its type is not known here.
        moved: name → part → key, of the parts that do not lie under their usual key.
    """

    record: Record
    fingerprint: str | None
    names: list[str]
    moved: dict[str, dict[str, str]]


def _sort(records: Mapping[str, Stored], registry: Registry) -> list[_Kind]:
    kinds: dict[object, _Kind] = {}
    for name, stored in records.items():
        record = stored.record
        # repr, since 1, 1.0 and True are equal and are not the same attribute
        attributes = repr(record.attributes)
        key = (record.type, record.version, record.dtype, record.shape, attributes,
               tuple(record.parts), stored.fingerprint)  # fmt: skip
        kind = kinds.get(key)
        if kind is None:
            kind = kinds[key] = _kind(stored, registry)
        kind.names.append(name)
    return list(kinds.values())


def _kind(stored: Stored, registry: Registry) -> _Kind:
    record, proof = stored.record, stored.fingerprint
    schema = registry.schema(record.type, record.version)
    if schema is not None:
        needed = without_defaults(schema, record.attributes, registry)
        record = replace(record, attributes=FrozenMap(needed))
        proof = fingerprint(schema, {*record.attributes, *record.parts})
    return _Kind(record=record, fingerprint=proof, names=[], moved={})


def _check_names(contents: Contents) -> None:
    check_names([*contents.plain, *contents.records, *contents.ties])
    for name in contents.records:
        if name in contents.plain:
            raise CollisionError(f"{name!r} is both a plain and a quantized tensor")
    for name in contents.ties:
        if name in contents.plain or name in contents.records:
            raise CollisionError(f"{name!r} is both a tensor and tied to another")


def _envelope(
    contents: Contents, kinds: list[_Kind], named: Collection[str], registry: Registry
) -> dict[str, Json]:
    schemas: dict[tuple[str, int, str | None], int] = {}
    entries: dict[str, dict[str, Json]] = {}
    for kind in kinds:
        record = kind.record
        head = (record.type, record.version, kind.fingerprint)
        entry: dict[str, Json] = {
            "schema": schemas.setdefault(head, len(schemas)),
            "dtype": record.dtype,
            "shape": list(record.shape),
            "attributes": {name: encode(value) for name, value in record.attributes.items()},
            "parts": list(record.parts),
        }
        # kinds that differed only in attributes at their defaults are one entry after all
        entry = entries.setdefault(json.dumps(entry, sort_keys=True), entry)
        entry.setdefault("names", []).extend(kind.names)
        if kind.moved:
            entry.setdefault("keys", {}).update(kind.moved)
    envelope: dict[str, Json] = {
        **contents.extra,
        "envelope": ENVELOPE_VERSION,
        "requires": [],
        "writer": WRITER,
        "schemas": [_head(*head) for head in schemas],
        "records": list(entries.values()),
    }
    optional = {
        "objects": _objects(kinds, registry),
        "ties": dict(contents.ties),
        "trail": contents.trail,
        "plain": [key for key, _ in strays(contents.plain, named)],
    }
    return envelope | {key: value for key, value in optional.items() if value}


def _head(kind: str, version: int, proof: str | None) -> dict[str, Json]:
    return {"type": kind, "version": version} | ({"fingerprint": proof} if proof else {})


def _objects(kinds: list[_Kind], registry: Registry) -> list[dict[str, Json]]:
    """The attribute objects in use, each with the fingerprint of what of its schema is used."""
    used: dict[tuple[str, int], set[str]] = {}
    for kind in kinds:
        for value in kind.record.attributes.values():
            collect_objects(value, used)
    rows = []
    for (name, version), fields in sorted(used.items()):
        schema = registry.schema(name, version)
        if schema is not None:
            rows.append(_head(name, version, fingerprint(schema, fields)))
    return rows


def collect_objects(value: Value, used: dict[tuple[str, int], set[str]]) -> None:
    """Adds the fields used by every nested object inside `value` to `used`."""
    if isinstance(value, tuple):
        for item in value:
            collect_objects(item, used)
    elif isinstance(value, Nested):
        used.setdefault((value.type, value.version), set()).update(value.fields)
        for item in value.fields.values():
            collect_objects(item, used)
