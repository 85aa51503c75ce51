import json
from dataclasses import replace

import pytest

from aoserial import torchao
from aoserial.errors import SchemaError
from aoserial.schema import (
    REGISTRY,
    Field,
    Schema,
    builtin,
    fingerprint,
    from_document,
    optional_attribute,
    optional_tensor,
    tensor,
    to_document,
)
from aoserial.schema.document import KEYWORD, read_document
from aoserial.schema.registry import builtin_documents

V1 = Schema(type="acme.T", version=1, fields=(tensor("qdata"), tensor("scale")))
EXTENDED = replace(
    V1,
    fields=(*V1.fields, optional_tensor("zero_point"), optional_attribute("mode", "str", "none")),
)
USED = {"qdata", "scale"}


OURS = (builtin.OWNER, torchao.OWNER)
BUILTIN = {
    str(schema): schema
    for kind in REGISTRY.types.values()
    if kind.owner in OURS
    for schema in (kind.head, *kind.older)
}
ENUMS = {
    name: enum
    for name, enum in REGISTRY.enums.items()
    if name.startswith(("aoserial.", "torchao."))
}
DOCUMENTS = builtin_documents()


@pytest.mark.parametrize("name", [*BUILTIN, *ENUMS])
def test_a_document_says_all_of_its_schema(name):
    schema = BUILTIN.get(name) or ENUMS[name]
    assert from_document(to_document(schema)) == schema


@pytest.mark.parametrize("name", BUILTIN)
def test_the_code_declares_what_the_frozen_document_says(name):
    schema = BUILTIN[name]
    text = (DOCUMENTS / schema.type / f"{schema.version}.json").read_text()
    assert read_document(text.encode()) == schema
    assert json.loads(text) == to_document(schema)


@pytest.mark.parametrize("name", ENUMS)
def test_the_code_declares_the_symbols_that_the_frozen_document_says(name):
    text = (DOCUMENTS / name / "enum.json").read_text()
    assert read_document(text.encode()) == ENUMS[name]
    assert json.loads(text) == to_document(ENUMS[name])


def test_every_frozen_document_belongs_to_a_type_that_ships():
    found = {f"{path.parent.name}@{path.stem}" for path in DOCUMENTS.glob("*/*.json")}
    assert found == set(BUILTIN) | {f"{name}@enum" for name in ENUMS}


def test_adding_an_optional_field_changes_no_old_fingerprint():
    assert fingerprint(V1, USED) == fingerprint(EXTENDED, USED)


def test_using_an_optional_field_changes_the_fingerprint():
    assert fingerprint(EXTENDED, USED) != fingerprint(EXTENDED, USED | {"zero_point"})


def test_the_fingerprint_does_not_depend_on_the_order_of_fields():
    assert fingerprint(V1, USED) == fingerprint(replace(V1, fields=V1.fields[::-1]), USED)


@pytest.mark.parametrize(
    "change",
    [
        {"dtypes": ("float32",)},
        {"shape": ("N", "1")},
        {"kind": "attribute", "type": "float"},
        {"absent": None},
        {"name": "scales"},
    ],
    ids=str,
)
def test_a_changed_meaning_of_a_required_field_changes_the_fingerprint(change):
    fields = (V1.fields[0], replace(V1.fields[1], **change))
    assert fingerprint(V1, USED) != fingerprint(replace(V1, fields=fields), USED)


def test_a_changed_meaning_of_absence_changes_the_fingerprint_where_the_field_is_used():
    field = optional_attribute("mode", "str", "none")
    before = Schema(type="acme.T", version=1, fields=(tensor("qdata"), field))
    after = replace(before, fields=(before.fields[0], replace(field, absent="int")))
    assert fingerprint(before, {"qdata", "mode"}) != fingerprint(after, {"qdata", "mode"})


@pytest.mark.parametrize(
    "change", [{"doc": "new words"}, {"default": "int"}, {"added_in": 1}], ids=str
)
def test_words_history_and_new_object_defaults_are_no_part_of_the_fingerprint(change):
    field = optional_attribute("mode", "str", "none")
    before = Schema(type="acme.T", version=1, fields=(tensor("qdata"), field))
    after = replace(before, fields=(before.fields[0], replace(field, **change)))
    assert fingerprint(before, {"qdata", "mode"}) == fingerprint(after, {"qdata", "mode"})


def test_a_file_with_a_fields_older_name_still_proves_its_schema():
    renamed = replace(
        V1, fields=(V1.fields[0], Field(name="scales", kind="tensor", renamed_from=("scale",)))
    )
    assert fingerprint(renamed, {"qdata", "scale"}) == fingerprint(V1, USED)
    assert fingerprint(renamed, {"qdata", "scales"}) != fingerprint(V1, USED)


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"type": "acme.T", "version": 1},
        {"type": "acme.T", "version": "1", "fields": {}},
        {"type": "acme.T", "version": 1, "fields": []},
        {"type": "acme.T", "version": 1, "fields": {"x": {}}},
        {"type": "acme.T", "version": 1, "fields": {}, "surprise": 1},
        {"type": "acme.T", "version": True, "fields": {}},
        {"type": "acme.T", "version": 1, "kind": "thing", "fields": {}},
        {"type": "acme.T", "version": 1, "dims": "NK", "fields": {}},
        {"type": "acme.T", "version": 1, "fields": {"x": {"kind": "tensors"}}},
        {"type": "acme.T", "version": 1, "fields": {"x": {"kind": "tensor", "dtype": "int8"}}},
        {"type": "acme.E", "kind": "enum"},
        {"type": "acme.E", "kind": "enum", "symbols": ["a"]},
        {"type": "acme.E", "kind": "enum", "symbols": {}, "surprise": 1},
        [],
    ],
    ids=str,
)
def test_a_malformed_document_is_refused_as_such(own):
    with pytest.raises(SchemaError):
        from_document({KEYWORD: own})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        "{}",
        '{"aoserial": 1}',
        '{"aoserial": {}, "aoserial": {}}',
        "NaN",
        "[" * 99999,
    ],
    ids=lambda text: text[:40] or "empty",
)
def test_what_is_no_document_is_refused_as_such(text):
    with pytest.raises(SchemaError):
        read_document(text.encode())


def test_a_document_of_another_version_than_its_name_says_is_refused(tmp_path):
    from aoserial.schema import Registry

    folder = tmp_path / "acme.T"
    folder.mkdir()
    (folder / "2.json").write_text(json.dumps(to_document(V1)))
    registry = Registry()
    registry.add(replace(V1, version=3), owner="test", frozen=tmp_path)
    with pytest.raises(SchemaError, match=r"2\.json.*is the document of acme\.T@1"):
        registry.schema("acme.T", 1)
