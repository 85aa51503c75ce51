from dataclasses import replace

import pytest
from gate.worlds import MODE, OPTIONS, T, checked, code, frozen, rules, steps

from aoserial.errors import Faults, SchemaError, UnknownTypeError
from aoserial.gate import draft, freeze
from aoserial.gate.frozen import files_in, read_frozen
from aoserial.schema import attribute, optional_attribute

EXTENDED = replace(T, fields=(*T.fields, optional_attribute("note", "str", "")))
BROKEN = replace(T, fields=(*T.fields, attribute("axis", "int")))


def lock(folder):
    return read_frozen(files_in(folder), str(folder)).lock


def test_freezing_writes_a_document_and_its_digest_and_then_nothing(tmp_path):
    now = code(tmp_path / "schemas", OPTIONS, T)
    assert freeze(now, ["acme.T"]) == ["acme.T/1.json", "acme.Mode/enum.json", "lock.json"]
    assert freeze(now, ["acme.T"]) == []
    assert set(lock(tmp_path / "schemas").documents) == {"acme.T/1.json", "acme.Mode/enum.json"}


def test_an_optional_field_extends_the_document_and_the_lock_keeps_both_forms(tmp_path):
    frozen(tmp_path)
    first = lock(tmp_path).documents["acme.T/1.json"]
    now = code(tmp_path, OPTIONS, EXTENDED)
    assert rules(checked(now)) == ["FROZEN_SCHEMA_OUTDATED"]
    assert freeze(now, ["acme.T"]) == ["acme.T/1.json", "lock.json"]
    assert not checked(now).findings
    assert lock(tmp_path).documents["acme.T/1.json"][:-1] == first


def test_a_change_that_needs_a_version_is_refused_and_nothing_is_written(tmp_path):
    frozen(tmp_path)
    before = files_in(tmp_path)
    two = replace(BROKEN, fields=BROKEN.fields[1:])
    with pytest.raises(Faults) as caught:
        freeze(code(tmp_path, OPTIONS, two), ["acme.T", "acme.Options"])
    told = str(caught.value)
    assert "FIELD_ADDED_REQUIRED" in told
    assert "FIELD_NO_DELETE_UNLESS_RESERVED" in told
    assert files_in(tmp_path) == before


def test_a_document_edited_by_hand_is_not_frozen_over(tmp_path):
    frozen(tmp_path)
    path = tmp_path / "acme.T/1.json"
    path.write_text(path.read_text() + "\n")
    with pytest.raises(SchemaError, match="FROZEN_SCHEMA_EDITED"):
        freeze(code(tmp_path, OPTIONS, T), ["acme.T"])


@pytest.mark.parametrize("text", ["{", '{"lock": 9}'])
def test_a_lock_that_cannot_be_read_is_not_overwritten(text, tmp_path):
    frozen(tmp_path)
    (tmp_path / "lock.json").write_text(text)
    with pytest.raises(SchemaError, match="LOCK_UNREADABLE"):
        freeze(code(tmp_path, OPTIONS, T), ["acme.T"])
    assert (tmp_path / "lock.json").read_text() == text


def test_a_document_that_was_deleted_comes_back_as_it_was_or_not_at_all(tmp_path):
    frozen(tmp_path)
    path = tmp_path / "acme.T/1.json"
    was, listed = path.read_bytes(), lock(tmp_path)
    path.unlink()
    shorter = replace(T, fields=tuple(f for f in T.fields if f.name != "gain"))
    with pytest.raises(SchemaError, match="FROZEN_SCHEMA_MISSING"):
        freeze(code(tmp_path, OPTIONS, shorter), ["acme.T"])
    assert not path.exists()
    assert freeze(code(tmp_path, OPTIONS, T), ["acme.T"]) == ["acme.T/1.json"]
    assert (path.read_bytes(), lock(tmp_path)) == (was, listed)


def test_documents_without_a_lock_are_not_locked_anew(tmp_path):
    frozen(tmp_path)
    (tmp_path / "lock.json").unlink()
    with pytest.raises(SchemaError, match="LOCK_UNREADABLE"):
        freeze(code(tmp_path, OPTIONS, T), ["acme.T"])
    assert not (tmp_path / "lock.json").exists()


def test_an_id_that_nobody_declares_and_a_type_without_a_folder_are_refused(tmp_path):
    with pytest.raises(UnknownTypeError, match="acme.Absent"):
        freeze(code(tmp_path, T), ["acme.Absent"])
    with pytest.raises(SchemaError, match="schemas="):
        freeze(code(None, T), ["acme.T"])


def test_a_symbol_may_be_added_to_an_enum_and_none_taken_away(tmp_path):
    frozen(tmp_path)
    more = replace(MODE, symbols={**MODE.symbols, "float": ""})
    assert freeze(code(tmp_path, enums=(more,)), ["acme.Mode"])
    with pytest.raises(SchemaError, match="ENUM_VALUE_NO_DELETE"):
        freeze(code(tmp_path, enums=(MODE,)), ["acme.Mode"])


# -- steps ----------------------------------------------------------------------------------------

T2 = replace(BROKEN, version=2)


def as_released(record):
    """Words."""
    return _helped(record.at(2), axis=0)  # the first axis


def _helped(record, axis):
    return record.set(axis=axis)


def test_a_released_step_is_recorded_and_an_edit_of_it_is_found(tmp_path):
    frozen(tmp_path, OPTIONS, T, T2)
    now = code(tmp_path, OPTIONS, T2, steps=steps(as_released))
    assert not lock(tmp_path).steps
    assert freeze(now, ["acme.T"], release=True) == ["lock.json"]
    assert not checked(now).findings

    def edited(record):
        return record.at(2).set(axis=1)

    other = code(tmp_path, OPTIONS, T2, steps=steps(edited))
    assert rules(checked(other)) == ["STEP_EDITED_AFTER_RELEASE"]
    gone = code(tmp_path, OPTIONS, T2)
    assert rules(checked(gone)) == ["STEP_MISSING"]
    assert freeze(other, ["acme.T"], release=True) == ["lock.json"]  # on purpose
    assert len(lock(tmp_path).steps["acme.T@1"]) == 2


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [
        ("return record.at(2)", "return record.at(\n        2\n    )  # words", True),
        ("return record.at(2)", '"""Words."""\n    return record.at(2)', True),
        ("return record.at(2)", "return record.at(3)", False),
        ("return helped(record)", "return helped(record)", True),
    ],
)
def test_layout_and_words_of_a_step_may_change_and_nothing_else(before, after, same, tmp_path):
    assert (digest_of(before, tmp_path / "a.py") == digest_of(after, tmp_path / "b.py")) is same


def test_what_a_step_calls_in_its_module_is_part_of_it(tmp_path):
    one = digest_of("return helped(record)", tmp_path / "a.py", "return record.at(2)")
    other = digest_of("return helped(record)", tmp_path / "b.py", "return record.at(3)")
    assert one != other


def digest_of(body, path, helped="return record"):
    from aoserial.gate.steps import code_digest

    text = f"def helped(record):\n    {helped}\n\n\ndef step(record):\n    {body}\n"
    path.write_text(text)
    namespace = {"__name__": "acme.steps"}
    exec(compile(text, str(path), "exec"), namespace)
    return code_digest(steps(namespace["step"]).find("acme.T", 1))


# -- drafts ---------------------------------------------------------------------------------------


def test_a_draft_freezes_the_next_version_and_begins_its_step(tmp_path):
    folder = frozen(tmp_path / "schemas")
    now = code(folder, OPTIONS, BROKEN)
    done = draft(now, "acme.T", target=tmp_path / "step.py")
    assert (done.old.version, done.new.version) == (1, 2)
    assert "acme.T/2.json" in done.written
    assert "say version=2 where acme.T is registered" in done.notes
    text = (tmp_path / "step.py").read_text()
    compile(text, "step.py", "exec")
    assert '@aoserial.migration("acme.T", 1, 2)' in text
    assert "axis is new and required" in text
    assert "VERSION_NOT_BUMPED" in rules(checked(now))  # what is left to do is found


def test_a_draft_asks_for_goldens_of_the_old_version_before_it_writes_anything(tmp_path):
    folder = frozen(tmp_path / "schemas")
    seen = []

    def record(ref, version):
        seen.append((ref, version))
        assert not (folder / "acme.T/2.json").exists()
        return [tmp_path / "golden"]

    now = code(folder, OPTIONS, BROKEN)
    done = draft(now, "acme.T", against="v1.0", record=record, target=tmp_path / "step.py")
    assert seen == [("v1.0", ("acme.T", 1))]
    assert done.goldens == [tmp_path / "golden"]
    assert not any("golden" in note for note in done.notes)


@pytest.mark.parametrize("schema", [T, EXTENDED], ids=["unchanged", "extended"])
def test_what_needs_no_version_is_not_drafted(schema, tmp_path):
    frozen(tmp_path)
    with pytest.raises(SchemaError, match="nothing about acme.T@1 needs a new version"):
        draft(code(tmp_path, OPTIONS, schema), "acme.T", target=tmp_path / "step.py")


def test_a_file_that_is_there_is_not_overwritten_by_a_draft(tmp_path):
    folder = frozen(tmp_path / "schemas")
    (tmp_path / "step.py").write_text("mine")
    with pytest.raises(ValueError, match="is there already"):
        draft(code(folder, OPTIONS, BROKEN), "acme.T", target=tmp_path / "step.py")
    assert not (folder / "acme.T/2.json").exists()
