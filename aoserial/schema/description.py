"""What a record looks like, in the words of JSON Schema (draft 2020-12). Torch-free.

A record's JSON form is `{"type", "version", "shape", "dtype", "attributes", "parts"}`, each part
`{"dtype", "shape"}`; that of an attribute object or an enum's symbol is what `values.encode` makes
of it. JSON Schema cannot compare lengths, so of a rule of shapes only ranks and numbers are said,
and of a nested object only its id: it may be of any version, and has a document of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from aoserial.schema.fields import Field
from aoserial.schema.schema import EnumSchema, Schema
from aoserial.schema.shapes import BLOCKS, Rule
from aoserial.schema.values import MAX_VERSION, Json, Missing, Symbol, encode

DIALECT = "https://json-schema.org/draft/2020-12/schema"
ENUM_FILE = "enum.json"  # an enum has no version: its document only ever gains symbols

_LENGTH: dict[str, Json] = {"type": "integer", "minimum": 0}
_VERSION: dict[str, Json] = {"type": "integer", "minimum": 1, "maximum": MAX_VERSION}
_DTYPE: dict[str, Json] = {"type": "string", "pattern": "^[a-z]+[0-9]*[0-9a-z_]*$"}
_PLAIN: dict[str, dict[str, Json]] = {
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "float": {
        "anyOf": [{"type": "number"}, {"enum": [{"$float": t} for t in ("nan", "inf", "-inf")]}]
    },
    "str": {"type": "string"},
    "dtype": _DTYPE,
    "any": {},
}


def describe(schema: Schema) -> dict[str, Json]:
    """The JSON Schema of a record or an attribute object of that schema."""
    values = {field.name: _value(field.type) for field in schema.attributes}
    inside = _fields(schema.attributes, schema, values, _prefixes(schema.ignorable, True))
    if schema.kind == "object":
        members: dict[str, Json] = {
            "$object": {"const": schema.type},
            "version": {"const": schema.version},
            "fields": inside,
        }
        return _object(members, members)
    parts = {field.name: _part(field) for field in schema.tensors}
    members = {
        "type": {"const": schema.type},
        "version": {"const": schema.version},
        "shape": _shape(schema.dims),
        "dtype": {"enum": list(schema.logical_dtypes)},
        "attributes": inside,
        "parts": _fields(
            schema.tensors, schema, parts, _prefixes((*schema.ignorable, *schema.holds), _ANY_PART)
        ),
    }
    conditions = [_condition(field, schema) for field in schema.tensors if field.when is not None]
    return _object(members, members) | ({"allOf": conditions} if conditions else {})


def describe_enum(schema: EnumSchema) -> dict[str, Json]:
    """The JSON Schema of a symbol; of an enum with a fallback, any name may come from a newer
    writer."""
    names: dict[str, Json] = {"type": "string"}
    if schema.fallback is None:
        names = {"enum": list(schema.symbols)}
    members = {"$enum": {"const": schema.type}, "name": names}
    return _object(members, members)


def _object(properties: Mapping[str, Json], required: Iterable[str]) -> dict[str, Json]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(required),
        "additionalProperties": False,
    }


def _prefixes(prefixes: Iterable[str], form: Json) -> dict[str, Json]:
    return {f"^{re.escape(prefix)}": form for prefix in prefixes}


def _fields(
    fields: tuple[Field, ...],
    schema: Schema,
    forms: Mapping[str, dict[str, Json]],
    patterns: Mapping[str, Json],
) -> dict[str, Json]:
    """The attributes or the parts of a record; `forms` by field, `patterns` by regex of names."""
    properties: dict[str, Json] = {}
    conditions: list[Json] = []
    for field in fields:
        form = dict(forms[field.name])
        if field.doc:
            form["description"] = field.doc
        if field.kind == "attribute" and not isinstance(field.absent, Missing):
            form["default"] = encode(field.absent)
        properties |= dict.fromkeys((field.name, *field.renamed_from), form)
        if field.renamed_from:
            conditions.append(_one_name(field))
    reserved = [field.name for field in schema.fields if field.removed]
    result = _object(
        properties | dict.fromkeys(reserved, False),
        [field.name for field in fields if field.required and not field.renamed_from],
    )
    if patterns:
        result["patternProperties"] = dict(patterns)
    return result | ({"allOf": conditions} if conditions else {})


def _one_name(field: Field) -> Json:
    """A field under exactly one of its names, or under none if it is optional."""
    each = [{"required": [name]} for name in (field.name, *field.renamed_from)]
    return {"oneOf": each if field.required else [*each, {"not": {"anyOf": each}}]}


def _value(text: str) -> dict[str, Json]:
    """The JSON Schema of an attribute type."""
    if text.endswith("?"):
        return {"anyOf": [_value(text[:-1]), {"type": "null"}]}
    if text.startswith("list["):
        return {"type": "array", "items": _value(text[5:-1])}
    if text.startswith("enum:"):
        return {"$ref": f"../{text[5:]}/{ENUM_FILE}"}
    if text.startswith("object:"):
        members: dict[str, Json] = {
            "$object": {"const": text[7:]},
            "version": _VERSION,
            "fields": {"type": "object"},
        }
        return _object(members, members)
    return _PLAIN[text]


def _part(field: Field) -> dict[str, Json]:
    dtype: dict[str, Json] = {"enum": list(field.dtypes)} if field.dtypes else _DTYPE
    members = {"dtype": dtype, "shape": _shape(field.shape)}
    return _object(members, members)


def _shape(rule: Rule | None) -> dict[str, Json]:
    """Its rank, and the lengths that are numbers; with leading dimensions, its least rank."""
    lengths: dict[str, Json] = {"type": "array", "items": _LENGTH}
    if rule is None or rule == BLOCKS:
        return lengths
    if rule[:1] == ("...",):
        return lengths | {"minItems": len(rule) - 1}
    lengths |= {"minItems": len(rule), "maxItems": len(rule)}
    if any(map(str.isdecimal, rule)):
        lengths["prefixItems"] = [
            {"const": int(term)} if term.isdecimal() else _LENGTH for term in rule
        ]
    return lengths


def _condition(field: Field, schema: Schema) -> Json:
    """An optional tensor that an enum attribute asks for, and that no other symbol allows."""
    assert field.when is not None
    attribute, symbols = field.when
    declared = schema.by_name.get(attribute)
    asked: dict[str, Json] = {
        "type": "object",
        "properties": {"name": {"enum": list(symbols)}},
        "required": ["name"],
    }
    names = (attribute, *(declared.renamed_from if declared else ()))
    absent = declared.absent if declared else None
    by_default = isinstance(absent, Symbol) and absent.name in symbols
    cases: list[Json] = [{"required": [name], "properties": {name: asked}} for name in names]
    if by_default:
        cases.append({"not": {"anyOf": [{"required": [name]} for name in names]}})
    held: Json = {"anyOf": [{"required": [name]} for name in (field.name, *field.renamed_from)]}
    return {
        "if": {"properties": {"attributes": {"anyOf": cases}}},
        "then": {"properties": {"parts": held}},
        "else": {"properties": {"parts": {"not": held}}},
    }


_ANY_PART = _part(Field(name="any", kind="tensor"))
