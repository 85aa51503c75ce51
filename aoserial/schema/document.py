"""The files of schemas: JSON documents, each a valid JSON Schema of what it declares. Torch-free.

`schemas/<type>/<version>.json` describes the records of a version; `<enum>/enum.json` the symbols
of an enum, which has no version. All that the schema says lies under one keyword, `aoserial`, and
the rest of the document follows from it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from aoserial.errors import SchemaError
from aoserial.schema.description import DIALECT, describe, describe_enum
from aoserial.schema.keywords import (
    enum_from_keywords,
    enum_keywords,
    schema_from_keywords,
    schema_keywords,
)
from aoserial.schema.schema import EnumSchema, Schema
from aoserial.schema.values import Json

_WIDTH = 96
KEYWORD = "aoserial"  # what of a document is ours; JSON Schema ignores keywords it does not know


def to_document(schema: Schema | EnumSchema) -> dict[str, Json]:
    """The document of a schema or an enum: plain JSON."""
    if isinstance(schema, EnumSchema):
        title, own, described = schema.type, enum_keywords(schema), describe_enum(schema)
    else:
        title, own, described = str(schema), schema_keywords(schema), describe(schema)
    document: dict[str, Json] = {"$schema": DIALECT, "title": title}
    if schema.doc:
        document["description"] = schema.doc
    return document | {KEYWORD: own} | described


def to_text(document: Json) -> str:
    """A document as it lies in its file: what fits on a line is on one."""
    return _laid_out(document, 0) + "\n"


def _laid_out(value: Json, indent: int) -> str:
    flat = json.dumps(value, ensure_ascii=False)
    if len(flat) + indent <= _WIDTH or not value or not isinstance(value, dict | list):
        return flat
    pad = " " * (indent + 1)
    if isinstance(value, dict):
        items = [
            f"{pad}{json.dumps(key, ensure_ascii=False)}: {_laid_out(item, indent + 1)}"
            for key, item in value.items()
        ]
        return "{\n" + ",\n".join(items) + f"\n{' ' * indent}}}"
    items = [pad + _laid_out(item, indent + 1) for item in value]
    return "[\n" + ",\n".join(items) + f"\n{' ' * indent}]"


def read_document(data: bytes) -> Schema | EnumSchema:
    """What a document's bytes say.

    Raises:
        SchemaError: bytes that are no document: cut short, a key given twice, not of this form.
    """
    try:
        document = json.loads(data, object_pairs_hook=_no_twins, parse_constant=_no_constant)
    except SchemaError:
        raise
    except (ValueError, RecursionError) as error:
        raise SchemaError(f"is not JSON: {error}") from None
    return from_document(document)


def from_document(document: Mapping[str, Json]) -> Schema | EnumSchema:
    """The schema, or the enum, of a document.

    Raises:
        SchemaError: a document that is not one.
    """
    try:
        own = document[KEYWORD]
        return enum_from_keywords(own) if own.get("kind") == "enum" else schema_from_keywords(own)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, SchemaError):
            raise
        raise SchemaError(f"is no schema document: {type(error).__name__}: {error}") from error


def _no_twins(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    data = dict(pairs)
    if len(data) != len(pairs):
        keys = [key for key, _ in pairs]
        twin = next(key for key in keys if keys.count(key) > 1)
        raise SchemaError(f"has the key {twin!r:.60} twice")
    return data


def _no_constant(text: str) -> None:
    raise SchemaError(f"is not JSON: {text}")
