"""Schemas as JSON documents, and their fingerprints. Torch-free.

The document is what `schemas/<type>/<version>.json` holds. The fingerprint is the proof of a
version number: SHA-256 over the canonical form of what a file relies on, which is the required
fields and those optional ones it uses. So an optional field added later changes no old file's
fingerprint, while a changed meaning of a used field is noticed. Names are taken as the file has
them, so a file that uses a field's older name still proves the schema it was written with.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any, Literal, cast

from aoserial.errors import SchemaError
from aoserial.schema.fields import Field, Kind
from aoserial.schema.schema import FLOATING, Schema
from aoserial.schema.values import MISSING, Json, Missing, Value, decode, encode

FINGERPRINT_LENGTH = 16  # hex digits: 64 bits against accident; it is no defence against malice


def to_document(schema: Schema) -> dict[str, Json]:
    """The document of a schema: plain JSON, what is at its default left out."""
    document: dict[str, Json] = {"type": schema.type, "version": schema.version}
    if schema.kind != "tensor":
        document["kind"] = schema.kind
    if schema.doc:
        document["doc"] = schema.doc
    if schema.dims is not None:
        document["dims"] = list(schema.dims)
    if schema.logical_dtypes != FLOATING:
        document["logical_dtypes"] = list(schema.logical_dtypes)
    if schema.ignorable:
        document["ignorable"] = list(schema.ignorable)
    if schema.holds:
        document["holds"] = list(schema.holds)
    document["fields"] = {field.name: _field_document(field) for field in schema.fields}
    return document


def from_document(document: Mapping[str, Json]) -> Schema:
    """The schema of a document.

    Raises:
        SchemaError: a document that is not one.
    """
    try:
        known = {"type", "version", "kind", "doc", "dims", "logical_dtypes"}
        known |= {"ignorable", "holds", "fields"}
        if unknown := set(document) - known:
            raise SchemaError(f"unknown keys in a schema document: {', '.join(sorted(unknown))}")
        return Schema(
            type=document["type"],
            version=document["version"],
            kind=cast("Literal['tensor', 'object']", document.get("kind", "tensor")),
            fields=tuple(_field(name, entry) for name, entry in document["fields"].items()),
            dims=_rule(document.get("dims")),
            logical_dtypes=tuple(document.get("logical_dtypes", FLOATING)),
            ignorable=tuple(document.get("ignorable", ())),
            holds=tuple(document.get("holds", ())),
            doc=document.get("doc", ""),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"malformed schema document: {error}") from error


def fingerprint(schema: Schema, used: Collection[str]) -> str:
    """Proof of what a record of `schema` that holds the fields `used` was written against.

    Args:
        used: the names of the fields present in the record, as the file has them.

    Returns:
        16 hex digits.
    """
    fields: dict[str, Json] = {}
    for field in schema.live_fields:
        aliases = [name for name in field.renamed_from if name in used]
        name = aliases[0] if aliases else field.name
        if field.required or name in used:
            fields[name] = _canonical_field(field)
    canonical = {
        "type": schema.type,
        "version": schema.version,
        "kind": schema.kind,
        "dims": schema.dims,
        "fields": fields,
    }
    if schema.logical_dtypes != FLOATING:
        canonical["logical_dtypes"] = schema.logical_dtypes
    text = json.dumps(canonical, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:FINGERPRINT_LENGTH]


def _canonical_field(field: Field) -> Json:
    """What of a field decides how a file is read: no doc, aliases, history, new-object default."""
    canonical = {
        "kind": field.kind,
        "type": field.type,
        "dtypes": sorted(field.dtypes),
        "shape": field.shape,
        "required": field.required,
        "absent": _encode_default(field.absent),
    }
    return canonical | ({"when": field.when} if field.when else {})


def _field_document(field: Field) -> dict[str, Json]:
    entry: dict[str, Json] = {"kind": field.kind}
    if field.kind == "attribute":
        entry["type"] = field.type
    if field.dtypes:
        entry["dtypes"] = list(field.dtypes)
    if field.shape is not None:
        entry["shape"] = list(field.shape)
    if field.when is not None:
        entry["when"] = {field.when[0]: list(field.when[1])}
    if field.absent is not MISSING:
        entry["absent"] = _encode_default(field.absent)
    if field.default is not MISSING:
        entry["default"] = _encode_default(field.default)
    if field.added_in != 1:
        entry["added_in"] = field.added_in
    if field.removed_in is not None:
        entry["removed_in"] = field.removed_in
    if field.renamed_from:
        entry["renamed_from"] = list(field.renamed_from)
    if field.doc:
        entry["doc"] = field.doc
    return entry


def _field(name: str, entry: Mapping[str, Json]) -> Field:
    return Field(
        name=name,
        kind=cast("Kind", entry["kind"]),
        type=entry.get("type", "any"),
        dtypes=tuple(entry.get("dtypes", ())),
        shape=_rule(entry.get("shape")),
        when=_when(entry.get("when")),
        absent=_decode_default(entry, "absent"),
        default=_decode_default(entry, "default"),
        added_in=entry.get("added_in", 1),
        removed_in=entry.get("removed_in"),
        renamed_from=tuple(entry.get("renamed_from", ())),
        doc=entry.get("doc", ""),
    )


def _when(entry: Mapping[str, Json] | None) -> tuple[str, tuple[str, ...]] | None:
    if entry is None:
        return None
    ((attribute, symbols),) = entry.items()
    return attribute, tuple(symbols)


def _rule(terms: list[str] | None) -> tuple[str, ...] | None:
    return None if terms is None else tuple(terms)


def _encode_default(default: Value | Missing) -> Json:
    return None if isinstance(default, Missing) else encode(default)


def _decode_default(entry: Mapping[str, Any], key: str) -> Value | Missing:
    return decode(entry[key]) if key in entry else MISSING
