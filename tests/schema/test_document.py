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
from aoserial.schema.registry import builtin_documents

V1 = Schema(type="acme.T", version=1, fields=(tensor("qdata"), tensor("scale")))
EXTENDED = replace(
    V1,
    fields=(*V1.fields, optional_tensor("zero_point"), optional_attribute("mode", "str", "none")),
)
USED = {"qdata", "scale"}


OURS = (builtin.OWNER, torchao.OWNER)
BUILTIN = sorted(name for name in REGISTRY if REGISTRY[name].owner in OURS)


@pytest.mark.parametrize("name", BUILTIN)
def test_a_document_says_all_of_its_schema(name):
    head = REGISTRY[name].head
    assert from_document(to_document(head)) == head


@pytest.mark.parametrize("name", BUILTIN)
def test_the_code_declares_what_the_frozen_document_says(name):
    found = REGISTRY[name]
    assert found.documents[found.head.version] == found.head


def test_every_frozen_document_belongs_to_a_type_that_ships():
    folder = builtin_documents()
    assert folder is not None
    assert sorted(path.parent.name for path in folder.glob("*/*.json")) == BUILTIN


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
    "document",
    [
        {},
        {"type": "acme.T", "version": 1},
        {"type": "acme.T", "version": "1", "fields": {}},
        {"type": "acme.T", "version": 1, "fields": []},
        {"type": "acme.T", "version": 1, "fields": {"x": {}}},
        {"type": "acme.T", "version": 1, "fields": {}, "surprise": 1},
    ],
    ids=str,
)
def test_a_malformed_document_is_refused_as_such(document):
    with pytest.raises(SchemaError):
        from_document(document)
