"""The envelope's JSON as typed data. Torch-free.

What is not of the right form is refused here, once; what the claims mean for a file is the next
module's business.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aoserial.errors import AoserialError, EnvelopeError, VersionError
from aoserial.record.catalog import Head
from aoserial.record.envelope.encode import ENVELOPE_VERSION
from aoserial.record.fields import (
    ARRAY,
    OBJECT,
    expect,
    lengths,
    parse_object,
    strings,
    take,
    take_or,
)
from aoserial.record.keys import key_prefix
from aoserial.schema import FrozenMap
from aoserial.schema.schema import check_type_id
from aoserial.schema.values import check_version, decode
from aoserial.storage import Shape
from aoserial.storage.dtypes import BY_NAME

FEATURES: frozenset[str] = frozenset()  # names in `requires` that this reader knows
_WHAT = "the envelope"


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """Records that agree in everything but their names.

    Attributes:
        head: their type, version and fingerprint.
        parts: the names of their parts.
        names: the records' own names.
        keys: name → part → key, for the parts that lie under another key than usual.
    """

    head: Head
    dtype: str
    shape: Shape
    attributes: FrozenMap
    parts: tuple[str, ...]
    names: tuple[str, ...]
    keys: Mapping[str, Mapping[str, str]]

    def keys_of(self, name: str) -> tuple[str, ...]:
        """The keys of the parts of one of its records, in the order of `parts`."""
        prefix = key_prefix(name)
        keys = [prefix + part for part in self.parts]
        if name in self.keys:
            moved = self.keys[name]
            keys = [moved.get(part, key) for part, key in zip(self.parts, keys, strict=True)]
        return tuple(keys)


@dataclass(frozen=True, kw_only=True, slots=True)
class Envelope:
    """An envelope of a version and with requirements that this reader knows."""

    writer: str
    header_digest: str
    crc32: str
    rows: tuple[Row, ...]
    objects: tuple[Head, ...]
    ties: Mapping[str, str]
    plain: tuple[str, ...]
    trail: tuple[dict[str, Any], ...]
    extra: Mapping[str, Any]


_KEYS = frozenset(
    (
        *("envelope", "requires", "writer", "header_digest", "crc32"),
        *("schemas", "records", "objects", "ties", "plain", "trail"),
    )
)


def parse_envelope(text: str) -> Envelope:
    """The envelope in `text`.

    Raises:
        VersionError: an envelope or feature that this reader does not know.
        EnvelopeError: anything malformed.
    """
    data = parse_object(text, "the aoserial envelope")
    writer = take_or(data, "writer", "", _WHAT)
    _check_readable(data, f", written by {writer}" if writer else "")
    heads = [_head(row) for row in take(data, "schemas", ARRAY, _WHAT)]
    ties: dict[str, str] = take_or(data, "ties", {}, _WHAT)
    strings(list(ties.values()), "'ties'")
    objects: list[object] = take_or(data, "objects", [], _WHAT)
    trail: list[object] = take_or(data, "trail", [], _WHAT)
    return Envelope(
        writer=writer,
        header_digest=take_or(data, "header_digest", "", _WHAT),
        crc32=take_or(data, "crc32", "", _WHAT),
        rows=tuple(
            _row(expect(row, OBJECT, f"record entry {number}"), heads, f"record entry {number}")
            for number, row in enumerate(take(data, "records", ARRAY, _WHAT))
        ),
        objects=tuple(_head(row) for row in objects),
        ties=ties,
        plain=tuple(strings(take_or(data, "plain", [], _WHAT), "'plain'")),
        trail=tuple(expect(step, OBJECT, "a step of 'trail'") for step in trail),
        extra={key: value for key, value in data.items() if key not in _KEYS},
    )


def _check_readable(data: Mapping[str, Any], by: str) -> None:
    version = take(data, "envelope", int, _WHAT)
    if version < 1:
        raise EnvelopeError(f"the envelope says version {version}, which there never was")
    if version > ENVELOPE_VERSION:
        raise VersionError(
            f"the envelope is version {version}{by}; this reader knows up to {ENVELOPE_VERSION}: "
            f"a newer aoserial reads it",
            found=version,
            supported=ENVELOPE_VERSION,
        )
    unknown = sorted(set(strings(take(data, "requires", ARRAY, _WHAT), "'requires'")) - FEATURES)
    if unknown:
        raise VersionError(
            f"the file requires {', '.join(map(repr, unknown))}{by}, which this reader does not "
            f"know: a newer aoserial reads it",
            found=tuple(unknown),
            supported=tuple(sorted(FEATURES)),
        )


def _head(row: object) -> Head:
    what = "a row of 'schemas'"
    data = expect(row, OBJECT, what)
    kind = take(data, "type", str, what)
    try:
        check_type_id(kind)
    except AoserialError as error:
        raise EnvelopeError(error.message) from None
    return Head(
        type=kind,
        version=check_version(data.get("version")),
        fingerprint=take(data, "fingerprint", str, what) if "fingerprint" in data else None,
    )


def _row(data: Mapping[str, Any], heads: list[Head], what: str) -> Row:
    index = take(data, "schema", int, what)
    if not 0 <= index < len(heads):
        raise EnvelopeError(f"{what} names schema {index} of {len(heads)}")
    parts = _distinct(take(data, "parts", ARRAY, what), f"'parts' of {what}")
    if not parts:
        raise EnvelopeError(f"{what} lists no parts")
    dtype = take(data, "dtype", str, what)
    if dtype not in BY_NAME:
        raise EnvelopeError(f"{what} has the unknown dtype {dtype!r:.40}")
    attributes = take(data, "attributes", OBJECT, what)
    names = _distinct(take(data, "names", ARRAY, what), f"'names' of {what}")
    return Row(
        head=heads[index],
        dtype=dtype,
        shape=lengths(take(data, "shape", ARRAY, what), f"'shape' of {what}"),
        attributes=FrozenMap({name: decode(value) for name, value in attributes.items()}),
        parts=parts,
        names=names,
        keys=_keys(take_or(data, "keys", {}, what), names, parts, what),
    )


def _distinct(values: list[Any], what: str) -> tuple[str, ...]:
    strings(values, what)
    if len(set(values)) != len(values):
        twin = next(value for value in values if values.count(value) > 1)
        raise EnvelopeError(f"{what} hold {twin!r:.120} twice")
    return tuple(values)


def _keys(
    data: Mapping[str, Any], names: tuple[str, ...], parts: tuple[str, ...], what: str
) -> Mapping[str, Mapping[str, str]]:
    if data and not data.keys() <= set(names):
        raise EnvelopeError(f"'keys' of {what} speak of records that it does not name")
    for table in data.values():
        if not expect(table, OBJECT, f"'keys' of {what}").keys() <= set(parts):
            raise EnvelopeError(f"'keys' of {what} speak of parts that it does not have")
        strings(list(table.values()), f"'keys' of {what}")
    return data
