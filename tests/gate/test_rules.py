"""Each rule: an edit that breaks it, found under its name, with a witness that the resolver refuses
(or takes silently for something else)."""

from dataclasses import replace

import pytest
from gate.worlds import KIND, MODE, OPTIONS, T, checked, code, frozen, rules, steps

from aoserial.gate import RULES, Goldens
from aoserial.schema import (
    Field,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)


def edited(name: str, /, **changes: object) -> Schema:
    """T with one of its fields changed."""
    fields = [replace(one, **changes) if one.name == name else one for one in T.fields]
    return replace(T, fields=tuple(fields))


def without(name: str, *more: Field) -> Schema:
    return replace(T, fields=(*(one for one in T.fields if one.name != name), *more))


EDITS = {
    "FIELD_NO_DELETE_UNLESS_RESERVED": [
        without("zero_point"),
        without("group_size"),
        without("gain", Field(name="gain", kind="attribute", removed_in=1)),
    ],
    "FIELD_ADDED_REQUIRED": [
        without("", tensor("more")),
        without("", attribute("more", "int")),
        without("", optional_tensor("more", when=("mode", ("int",)))),
    ],
    "FIELD_OPTIONAL_TO_REQUIRED": [
        without("zero_point", tensor("zero_point", "float32", shape=("N",)))
    ],
    "FIELD_REQUIRED_TO_OPTIONAL": [edited("group_size", absent=32)],
    "FIELD_SAME_TYPE": [edited("group_size", type="float"), edited("gain", type="float?")],
    "FIELD_SAME_KIND": [
        without("gain", optional_tensor("gain")),
        without("scale", attribute("scale", "float")),
    ],
    "FIELD_SAME_ABSENCE_DEFAULT": [edited("gain", absent=2.0), edited("order", absent="column")],
    "FIELD_SAME_CONDITION": [edited("zero_point", when=("mode", ("int",)))],
    "FIELD_RENAMED_WITHOUT_ALIAS": [edited("scale", name="scales"), edited("gain", name="g")],
    "FIELD_ALIAS_NO_DELETE": [edited("order", renamed_from=())],
    "RESERVED_NAME_REUSED": [without("gone", optional_attribute("gone", "int", 0))],
    "RESERVED_NAME_NO_DELETE": [without("gone")],
    "TENSOR_DTYPE_NARROWED": [
        edited("scale", dtypes=("float32",)),
        edited("qdata", dtypes=("int8",)),
    ],
    "TENSOR_DTYPE_WIDENED": [
        edited("qdata", dtypes=("uint8", "int8")),
        edited("qdata", dtypes=()),
    ],
    "LOGICAL_DTYPE_CHANGED": [replace(T, logical_dtypes=("bfloat16",))],
    "SHAPE_CONSTRAINT_CHANGED": [
        edited("qdata", shape=("N", "K")),
        edited("scale", shape=("N",)),
        edited("zero_point", shape=None),
        replace(T, dims=("...", "N", "K")),
    ],
    "IGNORABLE_NARROWED": [replace(T, ignorable=())],
    "HOLDS_NARROWED": [replace(T, holds=())],
    "TYPE_SAME_KIND": [Schema(type="acme.T", version=1, kind="object")],
}
WRITTEN = {
    "FIELD_RENAMED": [edited("scale", name="scales", renamed_from=("scale",))],
    "FIELD_ADDED": [
        without("", optional_tensor("more")),
        without("", optional_attribute("more", "int", 0)),
    ],
    "HOLDS_WIDENED": [replace(T, holds=("inner.", "outer."))],
}
NO_WITNESS = {"RESERVED_NAME_NO_DELETE"}  # breaks nothing yet: the next use of the name would


def cases(table):
    return [
        pytest.param(rule, schema, id=f"{rule}-{number}")
        for rule, schemas in table.items()
        for number, schema in enumerate(schemas)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return frozen(tmp_path_factory.mktemp("frozen"))


@pytest.mark.parametrize(("rule", "schema"), cases(EDITS))
def test_an_edit_that_breaks_old_files_is_found(rule, schema, folder):
    report = checked(code(folder, OPTIONS, schema))
    assert rules(report) == [rule]
    (finding,) = report.findings
    assert finding.subject == "acme.T@1"
    assert (finding.witness is None) == (rule in NO_WITNESS)


@pytest.mark.parametrize(("rule", "schema"), cases(WRITTEN))
def test_an_edit_that_breaks_only_old_readers_is_found_in_the_modes_that_ask(rule, schema, folder):
    now = code(folder, OPTIONS, schema)
    assert rules(checked(now, mode="write")) == rules(checked(now, mode="full")) == [rule]
    assert rules(checked(now)) == ["FROZEN_SCHEMA_OUTDATED"]
    (finding,) = checked(now, mode="write").findings
    assert finding.witness.direction == "write"


def test_several_edits_are_several_findings(folder):
    schema = replace(edited("gain", absent=2.0), ignorable=())
    assert sorted(rules(checked(code(folder, OPTIONS, schema)))) == [
        "FIELD_SAME_ABSENCE_DEFAULT",
        "IGNORABLE_NARROWED",
    ]


@pytest.mark.parametrize(
    "schema",
    [
        replace(T, doc="other words"),
        edited("gain", default=3.0),
        edited("gain", doc="other words"),
        replace(T, ignorable=("hint_", "note_")),
        without("", optional_attribute("hint_more", "int", 0)),
    ],
    ids=["words", "default", "words of a field", "ignorable", "ignorable field"],
)
@pytest.mark.parametrize("mode", ["read", "write", "full"])
def test_what_breaks_nothing_only_has_to_be_frozen_again(schema, mode, folder):
    assert rules(checked(code(folder, OPTIONS, schema), mode=mode)) == ["FROZEN_SCHEMA_OUTDATED"]


def test_an_unchanged_type_is_clean(folder):
    report = checked(code(folder, OPTIONS, T), mode="full")
    assert not report.findings
    assert report


@pytest.mark.parametrize(
    ("rule", "enum", "mode"),
    [
        ("ENUM_VALUE_NO_DELETE", replace(MODE, symbols={"none": ""}), "read"),
        ("ENUM_VALUE_ADDED", replace(MODE, symbols={**MODE.symbols, "new": ""}), "write"),
        ("ENUM_SAME_FALLBACK", replace(KIND, fallback="b"), "read"),
        ("ENUM_SAME_FALLBACK", replace(KIND, fallback=None), "read"),
    ],
    ids=str,
)
def test_an_edit_of_an_enum_is_found_with_its_witness(rule, enum, mode, folder):
    enums = tuple(enum if one.type == enum.type else one for one in (MODE, KIND))
    report = checked(code(folder, OPTIONS, T, enums=enums), mode=mode)
    assert rules(report) == [rule]
    assert report.findings[0].witness is not None


def test_a_symbol_of_an_enum_with_a_fallback_breaks_no_reader(folder):
    kind = replace(KIND, symbols={**KIND.symbols, "c": ""})
    report = checked(code(folder, OPTIONS, T, enums=(MODE, kind)), mode="full")
    assert rules(report) == ["FROZEN_SCHEMA_OUTDATED"]


def test_an_object_is_held_to_the_same_rules(folder):
    changed = replace(OPTIONS, fields=(OPTIONS.fields[0], optional_attribute("note", "str", "-")))
    report = checked(code(folder, changed, T))
    assert rules(report) == ["FIELD_SAME_ABSENCE_DEFAULT"]
    assert report.findings[0].witness.record["$object"] == "acme.Options"


# -- versions and steps -------------------------------------------------------------------------

T2 = replace(T, version=2, fields=(*T.fields, attribute("axis", "int")))
OPTIONS2 = replace(OPTIONS, version=2, fields=(*OPTIONS.fields, attribute("axis", "int")))


def to_two(record):
    return record.at(2).set(axis=0)


def drafted(record):
    raise NotImplementedError


def test_a_new_version_needs_a_step_and_a_document(folder):
    report = checked(code(folder, OPTIONS, T2))
    assert rules(report) == ["VERSION_NOT_FROZEN", "STEP_MISSING"]
    assert "no step leads from acme.T@1" in report.findings[1].witness.outcome
    assert rules(checked(code(folder, OPTIONS, T2, steps=steps(to_two)))) == ["VERSION_NOT_FROZEN"]


def test_a_new_version_is_clean_once_it_is_frozen(tmp_path):
    frozen(tmp_path, OPTIONS, T, T2)
    assert not checked(code(tmp_path, OPTIONS, T2, steps=steps(to_two))).findings


def test_a_step_that_was_only_drafted_is_found(folder):
    report = checked(code(folder, OPTIONS, T2, steps=steps(drafted)))
    assert rules(report) == ["VERSION_NOT_FROZEN", "STEP_UNFINISHED"]
    assert report.findings[1].witness is not None


def test_a_new_version_breaks_older_readers(folder):
    report = checked(code(folder, OPTIONS, T2, steps=steps(to_two)), mode="write")
    assert rules(report) == ["VERSION_NOT_FROZEN", "VERSION_RAISED"]
    assert "newer than this reader" in report.findings[1].witness.outcome


def test_a_skipped_version_is_found(folder):
    three = replace(T2, version=3)
    found = rules(checked(code(folder, OPTIONS, three, steps=steps(to_two))))
    assert found == ["VERSION_NOT_FROZEN", "VERSION_SKIPPED", "STEP_MISSING"]


def test_a_version_that_was_drafted_and_not_raised_is_found(tmp_path):
    frozen(tmp_path, OPTIONS, T, T2)
    report = checked(code(tmp_path, OPTIONS, replace(T2, version=1), steps=steps(to_two)))
    assert "VERSION_NOT_BUMPED" in rules(report)


def test_a_step_to_a_version_that_the_class_does_not_say_is_found(folder):
    report = checked(code(folder, OPTIONS, T, steps=steps(to_two)))
    assert rules(report) == ["VERSION_NOT_BUMPED"]


def test_a_version_that_went_down_is_found(tmp_path):
    frozen(tmp_path, OPTIONS, T, T2)
    assert "VERSION_LOWERED" in rules(checked(code(tmp_path, OPTIONS, T)))


def test_a_name_that_comes_back_is_found_though_nobody_reserved_it(tmp_path):
    two = replace(without("gain"), version=2)
    frozen(tmp_path, OPTIONS, T, two)
    three = replace(without("gain", optional_attribute("gain", "str", "")), version=3)
    chain = steps(lambda r: r.at(2), lambda r: r.at(3))
    report = checked(code(tmp_path, OPTIONS, three, steps=chain))
    assert rules(report) == ["VERSION_NOT_FROZEN", "RESERVED_NAME_REUSED"]


def test_an_object_must_stay_readable_at_every_version_that_parents_hold(tmp_path):
    frozen(tmp_path, OPTIONS, T, OPTIONS2)
    report = checked(code(tmp_path, OPTIONS2, T))
    assert rules(report) == ["NESTED_VERSION_RANGE_NARROWED"]
    assert "acme.T" in report.findings[0].message
    assert "no step leads" in report.findings[0].witness.outcome


def test_a_deleted_type_is_found_and_so_is_a_deleted_enum(folder):
    report = checked(code(folder, OPTIONS, enums=(MODE,)))
    assert rules(report) == ["TYPE_NO_DELETE_UNLESS_ALIASED"] * 2
    assert {one.subject for one in report.findings} == {"acme.T", "acme.Kind"}


def test_every_older_version_needs_a_golden_where_goldens_are_looked_at(tmp_path):
    frozen(tmp_path, OPTIONS, T, T2)
    now = code(tmp_path, OPTIONS, T2, steps=steps(to_two))
    assert rules(checked(now, goldens=Goldens(shown=set()))) == ["GOLDEN_MISSING"]
    assert not checked(now, goldens=Goldens(shown={("acme.T", 1)})).findings
    assert checked(now).unchecked == [f"goldens: no folder of them was given for {tmp_path}"]
    unseen = Goldens(shown=set(), unseen={("acme.T", 1): "lost", ("acme.T", 2): "new"})
    report = checked(now, goldens=unseen)
    assert (report.findings, report.unchecked) == ([], ["golden of acme.T@1: lost"])
    elsewhere = Goldens(shown=set(), of=tmp_path / "elsewhere")
    assert not checked(now, goldens=elsewhere).findings


def test_a_type_without_a_folder_of_documents_is_found():
    assert set(rules(checked(code(None, OPTIONS, T)))) == {"VERSION_NOT_FROZEN"}


def test_every_rule_says_how_to_put_it_right():
    assert all(rule.fix and rule.id == name for name, rule in RULES.items())


@pytest.mark.parametrize("name", ["zero_point", "gain"])
def test_a_name_that_older_readers_may_ignore_makes_them_lose_the_field_silently(name, folder):
    schema = edited(name, name=f"hint_{name}", renamed_from=(name,))
    (finding,) = checked(code(folder, OPTIONS, schema), mode="write").findings
    assert finding.rule == "FIELD_RENAMED"
    assert finding.witness.outcome.startswith(f"no error: {name} is taken")
