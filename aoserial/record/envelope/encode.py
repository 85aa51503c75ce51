"""Laying a checkpoint out as keyed parts and an envelope. Torch-free."""

from __future__ import annotations

import json
from collections.abc import Mapping
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
    """
    _check_names(contents)
    contents = replace(
        contents,
        records={name: _shortened(stored, registry) for name, stored in contents.records.items()},
    )
    keys = _assign_keys(contents)
    parts = dict(contents.plain)
    for name, stored in contents.records.items():
        for part_name, part in stored.record.parts.items():
            parts[keys[name][part_name]] = part
    envelope = _envelope(contents, keys, registry)
    if sealed:
        envelope |= {"header_digest": ZERO_DIGEST, "crc32": zero_checksums(len(parts))}
    metadata = dict(contents.metadata)
    metadata.setdefault("format", "pt")
    metadata[ENVELOPE_KEY] = json.dumps(
        envelope, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    return Sheet(parts=parts, metadata=metadata)


def _shortened(stored: Stored, registry: Registry) -> Stored:
    """The record as it is written: without the fields that are as their absence means."""
    record = stored.record
    schema = registry.schema(record.type, record.version)
    if schema is None:
        return stored
    attributes = FrozenMap(without_defaults(schema, record.attributes, registry))
    return replace(stored, record=replace(record, attributes=attributes))


def _check_names(contents: Contents) -> None:
    for name in contents.records:
        if name in contents.plain:
            raise CollisionError(f"{name!r} is both a plain and a quantized tensor")
    for name in contents.ties:
        if name in contents.plain or name in contents.records:
            raise CollisionError(f"{name!r} is both a tensor and tied to another")


def _assign_keys(contents: Contents) -> dict[str, dict[str, str]]:
    """The key of every part: plain tensors keep their names, records give way."""
    taken = set(contents.plain) | set(contents.records) | set(contents.ties)
    keys: dict[str, dict[str, str]] = {}
    for name, stored in contents.records.items():
        keys[name] = {}
        for part_name in stored.record.parts:
            key = keys[name][part_name] = free_key(name, part_name, taken)
            taken.add(key)
    return keys


def _envelope(
    contents: Contents, keys: Mapping[str, Mapping[str, str]], registry: Registry
) -> dict[str, Json]:
    schemas: dict[str, int] = {}
    entries: dict[str, dict[str, Json]] = {}
    for name, stored in contents.records.items():
        record = stored.record
        head = {
            "schema": _schema_row(stored, schemas, registry),
            "dtype": record.dtype,
            "shape": list(record.shape),
            "attributes": {key: encode(value) for key, value in record.attributes.items()},
            "parts": list(record.parts),
        }
        # texts, not equality, decide what may share an entry: 1, 1.0 and True are equal
        entry = entries.setdefault(json.dumps(head, sort_keys=True), {**head, "names": []})
        entry["names"].append(name)
        moved = {part: key for part, key in keys[name].items() if key != part_key(name, part)}
        if moved:
            entry.setdefault("keys", {})[name] = moved
    envelope: dict[str, Json] = {
        **contents.extra,
        "envelope": ENVELOPE_VERSION,
        "requires": [],
        "writer": WRITER,
        "schemas": [json.loads(row) for row in schemas],
        "records": list(entries.values()),
    }
    optional = {
        "objects": _object_rows(contents, registry),
        "ties": dict(contents.ties),
        "trail": contents.trail,
        "plain": [key for key, _ in strays(contents.plain, contents.records.keys())],
    }
    return envelope | {key: value for key, value in optional.items() if value}


def _schema_row(stored: Stored, rows: dict[str, int], registry: Registry) -> int:
    record = stored.record
    row = {"type": record.type, "version": record.version}
    schema = registry.schema(record.type, record.version)
    proof = fingerprint(schema, {*record.attributes, *record.parts}) if schema else None
    if proof or stored.fingerprint:
        row["fingerprint"] = proof or stored.fingerprint
    return rows.setdefault(json.dumps(row, sort_keys=True), len(rows))


def _object_rows(contents: Contents, registry: Registry) -> list[dict[str, Json]]:
    """The attribute objects in use, each with the fingerprint of what of its schema is used."""
    used: dict[tuple[str, int], set[str]] = {}
    for stored in contents.records.values():
        for value in stored.record.attributes.values():
            collect_objects(value, used)
    rows = []
    for (kind, version), fields in sorted(used.items()):
        schema = registry.schema(kind, version)
        if schema is not None:
            proof = fingerprint(schema, fields)
            rows.append({"type": kind, "version": version, "fingerprint": proof})
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
