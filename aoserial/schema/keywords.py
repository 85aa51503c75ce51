"""What a schema says as plain JSON: the keywords of our own in a document. Torch-free."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from aoserial.errors import SchemaError
from aoserial.schema.fields import Field
from aoserial.schema.schema import FLOATING, EnumSchema, Schema
from aoserial.schema.values import (
    MISSING,
    Json,
    Missing,
    Value,
    check_version,
    decode,
    encode,
)

Choice = TypeVar("Choice", bound=str)
_FIELD_KEYS = {
    *("kind", "type", "dtypes", "shape", "when", "absent", "default", "added_in", "removed_in"),
    *("renamed_from", "doc"),
}


def schema_keywords(schema: Schema) -> dict[str, Json]:
    """All that a schema says, what is at its default left out."""
    own: dict[str, Json] = {"type": schema.type, "version": schema.version}
    if schema.kind != "tensor":
        own["kind"] = schema.kind
    if schema.doc:
        own["doc"] = schema.doc
    if schema.dims is not None:
        own["dims"] = list(schema.dims)
    if schema.logical_dtypes != FLOATING:
        own["logical_dtypes"] = list(schema.logical_dtypes)
    if schema.ignorable:
        own["ignorable"] = list(schema.ignorable)
    if schema.holds:
        own["holds"] = list(schema.holds)
    own["fields"] = {field.name: _field_document(field) for field in schema.fields}
    return own


def schema_from_keywords(own: Mapping[str, Json]) -> Schema:
    """The inverse of `schema_keywords`; a malformed one fails as Python does."""
    known = {"type", "version", "kind", "doc", "dims", "logical_dtypes"}
    _only(own, known | {"ignorable", "holds", "fields"})
    return Schema(
        type=own["type"],
        version=check_version(own["version"]),
        kind=_one_of(("tensor", "object"), own.get("kind", "tensor")),
        fields=tuple(_field(name, entry) for name, entry in own["fields"].items()),
        dims=_rule(own.get("dims")),
        logical_dtypes=_strings(own.get("logical_dtypes", list(FLOATING))),
        ignorable=_strings(own.get("ignorable", [])),
        holds=_strings(own.get("holds", [])),
        doc=own.get("doc", ""),
    )


def enum_keywords(schema: EnumSchema) -> dict[str, Json]:
    """All that an enum says."""
    own: dict[str, Json] = {"type": schema.type, "kind": "enum"}
    if schema.doc:
        own["doc"] = schema.doc
    if schema.fallback is not None:
        own["fallback"] = schema.fallback
    return own | {"symbols": dict(schema.symbols)}


def enum_from_keywords(own: Mapping[str, Json]) -> EnumSchema:
    """The inverse of `enum_keywords`."""
    _only(own, {"type", "kind", "doc", "fallback", "symbols"})
    return EnumSchema(
        type=own["type"],
        symbols=dict(own["symbols"].items()),
        fallback=own.get("fallback"),
        doc=own.get("doc", ""),
    )


def _only(own: Mapping[str, Json], known: set[str]) -> None:
    if unknown := set(own) - known:
        raise SchemaError(f"unknown keys in a schema document: {', '.join(sorted(unknown))}")


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
        entry["absent"] = encode_default(field.absent)
    if field.default is not MISSING:
        entry["default"] = encode_default(field.default)
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
    _only(entry, _FIELD_KEYS)
    return Field(
        name=name,
        kind=_one_of(("tensor", "attribute"), entry["kind"]),
        type=entry.get("type", "any"),
        dtypes=_strings(entry.get("dtypes", [])),
        shape=_rule(entry.get("shape")),
        when=_when(entry.get("when")),
        absent=_decode_default(entry, "absent"),
        default=_decode_default(entry, "default"),
        added_in=check_version(entry.get("added_in", 1)),
        removed_in=check_version(entry["removed_in"]) if "removed_in" in entry else None,
        renamed_from=_strings(entry.get("renamed_from", [])),
        doc=entry.get("doc", ""),
    )


def _when(entry: Mapping[str, Json] | None) -> tuple[str, tuple[str, ...]] | None:
    if entry is None:
        return None
    ((attribute, symbols),) = entry.items()
    return attribute, _strings(symbols)


def _rule(terms: Json) -> tuple[str, ...] | None:
    return None if terms is None else _strings(terms)


def _strings(values: Json) -> tuple[str, ...]:
    if isinstance(values, list) and all(isinstance(value, str) for value in values):
        return tuple(values)
    raise SchemaError(f"expected a list of strings, found {values!r:.60}")


def _one_of(choices: tuple[Choice, ...], value: Json) -> Choice:
    for choice in choices:
        if value == choice:
            return choice
    raise SchemaError(f"expected {' or '.join(map(repr, choices))}, found {value!r:.60}")


def encode_default(default: Value | Missing) -> Json:
    """The JSON of a default, null for none."""
    return None if isinstance(default, Missing) else encode(default)


def _decode_default(entry: Mapping[str, Any], key: str) -> Value | Missing:
    return decode(entry[key]) if key in entry else MISSING
