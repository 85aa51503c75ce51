"""The frozen documents are JSON Schemas, and say what the code does: both ways.

Records that the resolver takes validate against the document of their version; records spoilt in
any way that JSON Schema can tell fail there, and in the resolver.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from referencing import Registry as Resources, Resource

from aoserial import torchao
from aoserial.errors import AoserialError
from aoserial.gate.candidates import candidates
from aoserial.gate.example import example
from aoserial.gate.witness import as_json
from aoserial.schema import REGISTRY, Schema, builtin, resolve
from aoserial.schema.registry import builtin_documents
from aoserial.schema.values import decode
from aoserial.storage import SlotPart

BASE = "file:///schemas/"
FOLDER = builtin_documents()
assert FOLDER is not None
TEXTS = {
    path.relative_to(FOLDER).as_posix(): json.loads(path.read_text())
    for path in sorted(FOLDER.glob("*/*.json"))
}
SCHEMAS = {
    str(schema): schema
    for kind in REGISTRY.types.values()
    if kind.owner in (builtin.OWNER, torchao.OWNER)
    for schema in (kind.head, *kind.older)
}


@cache
def resources() -> Resources:
    """The documents, found as files beside each other."""
    pairs = [(BASE + path, Resource.from_contents(text)) for path, text in TEXTS.items()]
    return Resources().with_resources(pairs)


def validator(path: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": BASE + path}, registry=resources())


def records(schema: Schema) -> Iterator[dict[str, Any]]:
    """The smallest record, one around each field, and one with every field."""
    held = {field.name for field in schema.live_fields}
    found = [record for name in schema.by_name for record in candidates(schema, name, REGISTRY)]
    for record in (*found, example(schema, REGISTRY), example(schema, REGISTRY, held=held)):
        if record is not None:
            yield as_json(record, schema)


def spoilt(schema: Schema, record: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The record with one thing wrong."""
    fields = "fields" if schema.kind == "object" else "attributes"
    places = [fields] if schema.kind == "object" else ["attributes", "parts"]

    def copied() -> dict[str, Any]:
        return copy.deepcopy(record)

    for field in schema.live_fields:
        place = "parts" if field.kind == "tensor" else fields
        if field.name not in record[place]:
            continue
        if field.required:
            other = copied()
            del other[place][field.name]
            yield f"without {field.name}", other
        if field.dtypes:
            other = copied()
            other[place][field.name]["dtype"] = "complex64"
            yield f"{field.name} complex", other
        if field.kind == "attribute" and field.type != "any":
            other = copied()
            other[place][field.name] = {"$float": "nan"} if field.type != "float" else "x"
            if field.type.removesuffix("?") != "float":
                yield f"{field.name} of another type", other
    for place in places:
        other = copied()
        form = {"dtype": "float32", "shape": [1]} if place == "parts" else 1
        other[place]["unheard_of"] = form
        yield f"unknown in {place}", other
    for field in schema.fields:
        if field.removed:
            other = copied()
            other[fields][field.name] = 1
            yield f"{field.name}, which was removed", other
    if schema.kind == "tensor":
        other = copied()
        other["dtype"] = "int64"
        yield "an integer dtype", other


def taken(schema: Schema, record: dict[str, Any]) -> bool:
    """Whether the resolver takes a record in its JSON form."""
    fields = record["fields" if schema.kind == "object" else "attributes"]
    parts = {
        name: SlotPart(name, part["dtype"], tuple(part["shape"]))
        for name, part in record.get("parts", {}).items()
    }
    if schema.kind == "tensor" and record["dtype"] not in schema.logical_dtypes:
        return False
    try:
        resolve(
            schema,
            shape=tuple(record.get("shape", ())),
            attributes={name: decode(value) for name, value in fields.items()},
            parts=parts,
            registry=REGISTRY,
        )
    except AoserialError:
        return False
    return True


def test_every_document_is_a_json_schema():
    for text in TEXTS.values():
        Draft202012Validator.check_schema(text)


@pytest.mark.parametrize("name", SCHEMAS)
def test_records_validate_and_spoilt_ones_do_not(name):
    schema = SCHEMAS[name]
    document = validator(f"{schema.type}/{schema.version}.json")
    found = list(records(schema))
    assert found
    for record in found:
        assert taken(schema, record)
        document.validate(record)
    for record in (found[-1], found[-2]):  # the fullest and the smallest
        for what, other in spoilt(schema, record):
            assert not document.is_valid(other), what
            assert not taken(schema, other), what


def test_a_record_of_another_type_or_version_does_not_validate():
    document = validator("aoserial.Int4Tensor/1.json")
    record = next(records(SCHEMAS["aoserial.Int4Tensor@1"]))
    document.validate(record)
    assert not document.is_valid(record | {"version": 2})
    assert not document.is_valid(record | {"type": "aoserial.Int8Tensor"})
    assert not document.is_valid(record | {"surprise": 1})
    assert not document.is_valid(record | {"shape": [-1, 4]})
    assert not document.is_valid(record | {"shape": [4]})  # N and K at the least


def test_a_tensor_that_the_zero_domain_asks_for_must_be_there_and_may_not_be_otherwise():
    schema = SCHEMAS["aoserial.Int4Tensor@1"]
    document = validator("aoserial.Int4Tensor/1.json")
    record = next(records(schema))
    domain = {"$enum": "aoserial.ZeroDomain", "name": "int"}
    asking = record | {"attributes": record["attributes"] | {"zero_domain": domain}}
    zero_point = {"dtype": "int8", "shape": record["parts"]["scale"]["shape"]}
    with_zero_point = {"parts": record["parts"] | {"zero_point": zero_point}}
    assert not document.is_valid(asking)
    document.validate(asking | with_zero_point)
    assert not document.is_valid(record | with_zero_point)


@pytest.mark.parametrize("name", [path for path in TEXTS if path.endswith("enum.json")])
def test_symbols_of_an_enum_validate_and_others_only_where_there_is_a_fallback(name):
    enum = REGISTRY.enums[name.partition("/")[0]]
    document = validator(name)
    for symbol in enum.symbols:
        document.validate({"$enum": enum.type, "name": symbol})
    newer = {"$enum": enum.type, "name": "of a newer writer"}
    assert document.is_valid(newer) == (enum.fallback is not None)
    assert not document.is_valid({"$enum": "acme.Other", "name": next(iter(enum.symbols))})
    assert not document.is_valid(next(iter(enum.symbols)))
