"""Chains of steps on records: what the engine runs, and what it refuses to run."""

import pytest
from support.tensors import same_bytes

from aoserial.errors import DriftError, FieldError, MigrationError, SchemaError, VersionError
from aoserial.migrations import Steps, Upgrader, bind, is_header_only, migration
from aoserial.record import Record, template
from aoserial.schema import (
    FrozenMap,
    Nested,
    Registry,
    Schema,
    attribute,
    fingerprint,
    optional_attribute,
    tensor,
    to_document,
)
from aoserial.storage import TensorPart, compute

torch = pytest.importorskip("torch")

QDATA, SCALE = ("uint8", (4, 8)), ("float32", (4, 1))
HEAD_FIELDS = (tensor("qdata"), tensor("scale"), attribute("mode", "str"))


def record(version=1, *, kind="acme.T", parts=None, **attributes):
    return template(
        type=kind,
        version=version,
        shape=(4, 8),
        dtype="bfloat16",
        attributes=FrozenMap(attributes),
        parts=parts or {"qdata": QDATA, "scale": SCALE},
    )


def upgrader(head, steps, *more):
    registry = Registry()
    for schema in (head, *more):
        registry.add(schema, owner="test")
    return Upgrader(registry=registry, steps=steps)


def head(version, *fields):
    return Schema(type="acme.T", version=version, fields=fields or HEAD_FIELDS)


def test_a_record_at_the_head_passes_through_unchanged():
    before = record(mode="none")
    outcome = upgrader(head(1), Steps()).upgrade(before)
    assert outcome.steps == ()
    assert outcome.record.parts["qdata"] is before.parts["qdata"]


def test_steps_run_in_order_from_the_stored_version_to_the_head():
    steps = Steps()

    @migration("acme.T", 1, 2, steps=steps)
    def first(record):
        return record.at(2).set(mode="first")

    @migration("acme.T", 2, 3, steps=steps)
    def second(record):
        return record.at(3).set(mode=record.attributes["mode"] + " second")

    outcome = upgrader(head(3), steps).upgrade(record())
    assert [step.name for step in outcome.steps] == ["first", "second"]
    assert (outcome.record.version, outcome.record.attributes["mode"]) == (3, "first second")


def test_running_a_chain_on_its_own_result_changes_nothing():
    steps = Steps()
    migration("acme.T", 1, 2, steps=steps)(lambda record: record.at(2).set(mode="int"))
    engine = upgrader(head(2), steps)
    once = engine.upgrade(record()).record
    again = engine.upgrade(once)
    assert (again.record, again.steps) == (once, ())


def test_a_step_may_change_the_type_and_the_fields_decide_which():
    steps = Steps()

    @migration("acme.T", 1, 1, becomes=("acme.Signed", "acme.Unsigned"), steps=steps)
    def split(record):
        signed = record.attributes["mode"] == "signed"
        return record.at(1, type="acme.Signed" if signed else "acme.Unsigned")

    others = [
        Schema(type=kind, version=1, fields=HEAD_FIELDS)
        for kind in ("acme.Signed", "acme.Unsigned")
    ]
    engine = upgrader(head(1), steps, *others)
    assert engine.upgrade(record(mode="signed")).record.type == "acme.Signed"
    assert engine.upgrade(record(mode="plain")).record.type == "acme.Unsigned"


def test_a_chain_stops_where_it_is_told_to():
    steps = Steps()
    migration("acme.T", 1, 2, steps=steps)(lambda record: record.at(2))
    migration("acme.T", 2, 3, steps=steps)(lambda record: record.at(3).set(mode="x"))
    outcome = upgrader(head(3), steps).upgrade(record(), stop=("acme.T", 2))
    assert outcome.record.version == 2


def test_a_gap_in_the_chain_is_refused_and_the_error_names_the_missing_step():
    steps = Steps()
    migration("acme.T", 2, 3, steps=steps)(lambda record: record.at(3))
    with pytest.raises(MigrationError, match="no step leads from acme.T@1 towards version 3"):
        upgrader(head(3), steps).upgrade(record())


def test_a_version_above_the_head_is_refused_with_both_numbers():
    with pytest.raises(VersionError, match="acme.T@5 is newer.*up to version 1") as caught:
        upgrader(head(1), Steps()).upgrade(record(5, mode="x"))
    assert (caught.value.found, caught.value.supported) == (5, 1)


def test_two_steps_from_one_version_are_a_fork_and_refused():
    steps = Steps()

    @migration("acme.T", 1, 2, steps=steps)
    def one(record):
        return record

    with pytest.raises(SchemaError, match="already has the step"):

        @migration("acme.T", 1, 2, steps=steps)
        def other(record):
            return record


def test_a_step_that_skips_a_version_is_refused():
    with pytest.raises(SchemaError, match="must lead to version 2"):
        migration("acme.T", 1, 3, steps=Steps())(lambda record: record)


def test_types_that_become_each_other_are_a_circle_and_refused():
    steps = Steps()
    migration("acme.T", 1, 1, becomes="acme.U", steps=steps)(
        lambda record: record.at(1, type="acme.U")
    )
    migration("acme.U", 1, 1, becomes="acme.T", steps=steps)(
        lambda record: record.at(1, type="acme.T")
    )
    other = Schema(type="acme.U", version=1, fields=HEAD_FIELDS)
    with pytest.raises(MigrationError, match="in a circle at acme.T@1"):
        upgrader(head(1), steps, other).upgrade(record(mode="x"))


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (lambda record: record, "returned acme.T@1"),
        (lambda record: record.at(2, type="acme.Other"), "returned acme.Other@2"),
        (lambda _: None, "returned a NoneType"),
        (lambda record: record.attributes["absent"], "failed: KeyError"),
        (lambda record: record.parts["qdata"].read(), "may not look at values"),
        (lambda record: record.at(2).drop("nothing"), "no field 'nothing'"),
    ],
)
def test_a_step_that_breaks_its_word_is_blamed_by_name(result, reason):
    steps = Steps()
    migration("acme.T", 1, 2, steps=steps)(result)
    with pytest.raises(MigrationError, match=reason):
        upgrader(head(2), steps).upgrade(record())


def test_the_result_of_a_chain_is_held_against_the_head():
    steps = Steps()
    migration("acme.T", 1, 2, steps=steps)(lambda record: record.at(2).set(mode=7))
    with pytest.raises(FieldError, match="expected str, found 7"):
        upgrader(head(2), steps).upgrade(record())


def test_a_frozen_document_is_held_against_the_record_before_its_step(tmp_path):
    import json

    folder = tmp_path / "acme.T"
    folder.mkdir()
    old = Schema(type="acme.T", version=1, fields=(tensor("qdata", "int8"), tensor("scale")))
    (folder / "1.json").write_text(json.dumps(to_document(old)))
    registry, steps = Registry(), Steps()
    registry.add(head(2), owner="test", frozen=tmp_path)
    migration("acme.T", 1, 2, steps=steps)(lambda record: record.at(2).set(mode="x"))
    with pytest.raises(FieldError, match="dtype is uint8, expected int8"):
        Upgrader(registry=registry, steps=steps).upgrade(record())


def test_a_frozen_document_fills_what_absence_meant_at_that_version(tmp_path):
    import json

    (tmp_path / "acme.T").mkdir()
    old = Schema(
        type="acme.T",
        version=1,
        fields=(tensor("qdata"), tensor("scale"), optional_attribute("mode", "str", "none")),
    )
    (tmp_path / "acme.T" / "1.json").write_text(json.dumps(to_document(old)))
    registry, steps = Registry(), Steps()
    registry.add(head(2), owner="test", frozen=tmp_path)
    migration("acme.T", 1, 2, steps=steps)(lambda record: record.at(2))
    outcome = Upgrader(registry=registry, steps=steps).upgrade(record())
    assert outcome.record.attributes["mode"] == "none"


def test_the_same_version_written_with_another_schema_is_drift():
    engine = upgrader(head(1), Steps())
    good = fingerprint(head(1), {"qdata", "scale", "mode"})
    assert engine.upgrade(record(mode="x"), written_with=good)
    with pytest.raises(DriftError, match="without a new version"):
        engine.upgrade(record(mode="x"), written_with="0123456789abcdef")


def test_nested_objects_are_upgraded_before_the_record_that_holds_them():
    seen = []
    registry, steps = Registry(), Steps()
    registry.add(
        Schema(
            type="acme.T", version=2, fields=(*HEAD_FIELDS[:2], attribute("act", "object:acme.Act"))
        ),
        owner="test",
    )
    registry.add(
        Schema(type="acme.Act", version=2, kind="object", fields=(attribute("bits", "int"),)),
        owner="test",
    )
    migration("acme.Act", 1, 2, steps=steps)(
        lambda act: Nested("acme.Act", 2, FrozenMap(bits=act["width"] * 8))
    )

    @migration("acme.T", 1, 2, steps=steps)
    def look(record):
        seen.append(record.attributes["act"])
        return record.at(2)

    old = Nested("acme.Act", 1, FrozenMap(width=1))
    outcome = Upgrader(registry=registry, steps=steps).upgrade(record(act=old))
    assert seen == [Nested("acme.Act", 2, FrozenMap(bits=8))]
    assert outcome.record.attributes["act"]["bits"] == 8


def test_a_nested_object_newer_than_its_head_is_refused():
    registry = Registry()
    registry.add(
        Schema(type="acme.T", version=1, fields=(*HEAD_FIELDS[:2], attribute("act", "any"))),
        owner="t",
    )
    registry.add(Schema(type="acme.Act", version=1, kind="object"), owner="t")
    with pytest.raises(VersionError, match="acme.Act@2 is newer"):
        Upgrader(registry=registry, steps=Steps()).upgrade(
            record(act=Nested("acme.Act", 2, FrozenMap()))
        )


# -- what kind of migration it is ------------------------------------------------------------------


def outcome_of(step):
    steps = Steps()
    migration("acme.T", 1, 2, steps=steps)(step)
    before = record(mode="x")
    return before, upgrader(head(2, *HEAD_FIELDS), steps).upgrade(before).record


def test_renaming_and_describing_is_header_only():
    before = record(mode="x", parts={"codes": QDATA, "scale": SCALE})
    after = before.at(2).rename(codes="qdata").set(mode="y")
    assert is_header_only(before, after)


def test_viewing_the_same_bytes_is_header_only():
    before, after = outcome_of(lambda r: r.at(2).put(qdata=r.parts["qdata"].view("int8", (8, 4))))
    assert is_header_only(before, after)


@pytest.mark.parametrize(
    "step",
    [
        lambda r: r.at(2).put(
            scale=compute(lambda s: 1 / s, r.parts["scale"], dtype="float32", shape=(4, 1))
        ),
        lambda r: r.at(2).put(scale=r.parts["qdata"].view("float32", (4, 2))),
    ],
    ids=["computed", "one part twice, another not at all"],
)
def test_anything_else_moves_data(step):
    before, after = outcome_of(step)
    assert not is_header_only(before, after)


def test_a_dropped_part_moves_data():
    before = record(mode="x")
    assert not is_header_only(before, before.at(2).drop("scale"))


# -- binding ---------------------------------------------------------------------------------------


def test_a_chain_run_once_serves_every_record_like_it():
    def double(scale):
        return scale * 2

    before, after = outcome_of(
        lambda r: r.at(2).put(
            scale=compute(double, r.parts["scale"], dtype="float32", shape=(4, 1))
        )
    )
    for value in (1.5, -3.0):
        codes, scale = torch.arange(32, dtype=torch.uint8).view(4, 8), torch.full((4, 1), value)
        slots = dict(zip(before.parts.values(), map(TensorPart, (codes, scale)), strict=True))
        bound = bind(after, slots)
        assert same_bytes(bound.parts["scale"].read(), scale * 2)
        assert same_bytes(bound.parts["qdata"].read(), codes)


def test_a_computation_that_makes_something_else_than_declared_is_refused():
    part = compute(
        lambda s: s.double(), TensorPart(torch.ones(4, 1)), dtype="float32", shape=(4, 1)
    )
    with pytest.raises(MigrationError, match="declared float32.* but made float64"):
        part.read()


def test_a_view_may_not_change_the_byte_length():
    part = TensorPart(torch.zeros(4, 8, dtype=torch.uint8))
    assert part.view("float32", (8,)).read().shape == (8,)
    with pytest.raises(MigrationError, match="32 bytes against 64"):
        part.view("float32", (16,))


def test_a_record_cannot_be_changed():
    with pytest.raises(AttributeError):
        record().version = 2
    with pytest.raises(TypeError):
        record().parts["x"] = None
    assert isinstance(record(), Record)
