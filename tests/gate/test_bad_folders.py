"""Folders that were tampered with, commits that are not there, modules that do not import: one
clear finding for each, and all of them in one report."""

import json
import subprocess

import pytest
from gate.worlds import OPTIONS, T, checked, code, frozen, rules

from aoserial.gate import check, code_of
from aoserial.schema import to_document
from aoserial.schema.document import to_text

DOCUMENT = "acme.T/1.json"


@pytest.fixture
def folder(tmp_path):
    return frozen(tmp_path / "schemas")


@pytest.fixture
def now(folder):
    return code(folder, OPTIONS, T)


def the_finding(report):
    (finding,) = report.findings
    return finding.rule, finding.subject


def test_a_document_edited_by_hand(folder, now):
    path = folder / DOCUMENT
    path.write_text(path.read_text().replace('"uint8"', '"int8"'))
    report = checked(now)
    assert the_finding(report) == ("FROZEN_SCHEMA_EDITED", DOCUMENT)
    assert "edited by hand" in report.findings[0].message


def test_a_document_of_which_only_the_layout_was_edited(folder, now):
    path = folder / DOCUMENT
    path.write_text(json.dumps(json.loads(path.read_text())))
    assert the_finding(checked(now)) == ("FROZEN_SCHEMA_EDITED", DOCUMENT)


def test_a_document_put_back_to_an_earlier_form(folder, now):
    from dataclasses import replace

    first = (folder / DOCUMENT).read_bytes()
    newer = replace(T, doc="words")
    frozen(folder, newer)
    (folder / DOCUMENT).write_bytes(first)
    report = checked(code(folder, OPTIONS, newer))
    assert rules(report) == ["FROZEN_SCHEMA_EDITED"]
    assert "an earlier form" in report.findings[0].message


@pytest.mark.parametrize(
    "spoil",
    [
        lambda text: text[: len(text) // 2],
        lambda _: "",
        lambda text: text.replace('"type": "acme.T"', '"type": "acme.T", "type": "acme.T"'),
        lambda text: text.replace('"kind": "tensor"', '"kind": "tensors"'),
        lambda _: "[]",
        lambda text: text.replace('"version": 1', '"version": NaN'),
        lambda _: "[" * 100_000,
    ],
    ids=["cut short", "empty", "a key twice", "nonsense", "another form", "NaN", "deep"],
)
def test_a_document_that_cannot_be_read(spoil, folder, now):
    path = folder / DOCUMENT
    path.write_text(spoil(path.read_text()))
    assert the_finding(checked(now)) == ("FROZEN_SCHEMA_UNREADABLE", DOCUMENT)


def test_a_document_that_is_there_twice(folder, now):
    (folder / "acme.T/2.json").write_bytes((folder / DOCUMENT).read_bytes())
    assert the_finding(checked(now)) == ("FROZEN_SCHEMA_MISPLACED", "acme.T/2.json")


def test_a_document_that_is_gone_and_another_that_nobody_locked(folder, now):
    (folder / DOCUMENT).unlink()
    other = folder / "acme.Other/1.json"
    other.parent.mkdir()
    other.write_text(to_text(to_document(type(T)(type="acme.Other", version=1))))
    found = [(one.rule, one.subject) for one in checked(now).findings]
    assert ("FROZEN_SCHEMA_MISSING", DOCUMENT) in found
    assert ("FROZEN_SCHEMA_NOT_LOCKED", "acme.Other/1.json") in found
    assert ("TYPE_NO_DELETE_UNLESS_ALIASED", "acme.Other") in found


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"lock": 2}',
        '{"lock": 1, "documents": {"x": []}}',
        '{"lock": 1, "documents": {"x": [1]}}',
        '{"lock": 1, "documents": []}',
        '{"lock": 1, "lock": 1}',
        '{"lock": 1, "steps": {"nonsense": ["0"]}}',
        '{"lock": 1, "steps": {"acme.T@\u00b2": ["0"]}}',
    ],
)
def test_a_lock_that_cannot_be_read(text, folder, now):
    (folder / "lock.json").write_text(text)
    assert the_finding(checked(now)) == ("LOCK_UNREADABLE", "lock.json")


def test_a_document_that_is_gone_is_one_finding(folder, now):
    (folder / DOCUMENT).unlink()
    assert the_finding(checked(now)) == ("FROZEN_SCHEMA_MISSING", DOCUMENT)
    (folder / DOCUMENT).mkdir()
    assert the_finding(checked(now)) == ("FROZEN_SCHEMA_MISSING", DOCUMENT)


def test_a_lock_that_is_gone(folder, now):
    (folder / "lock.json").unlink()
    assert the_finding(checked(now)) == ("LOCK_UNREADABLE", "lock.json")


def test_all_that_is_wrong_comes_at_once(folder):
    (folder / DOCUMENT).write_text("{")
    (folder / "acme.Mode/enum.json").unlink()
    (folder / "acme.Mode/extra.json").write_text("{}")
    now = code(folder, OPTIONS, T, type(T)(type="acme.New", version=1))
    found = {(one.rule, one.subject) for one in checked(now, against="no-such-ref").findings}
    assert found == {
        ("FROZEN_SCHEMA_UNREADABLE", DOCUMENT),
        ("FROZEN_SCHEMA_UNREADABLE", "acme.Mode/extra.json"),
        ("FROZEN_SCHEMA_MISSING", "acme.Mode/enum.json"),
        ("VERSION_NOT_FROZEN", "acme.New@1"),
        ("BASELINE_NOT_FOUND", "no-such-ref"),
    }


@pytest.mark.parametrize(
    "ref", ["no-such-ref", "--upload-pack=x", "HEAD:schemas", "", "HEAD\0", "HEAD..HEAD"]
)
def test_a_commit_that_is_not_there(ref, folder, now):
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "x"]):
        git(folder, *command)
    report = checked(now, against=ref)
    assert rules(report) == ["BASELINE_NOT_FOUND"]
    assert report.failed


def test_a_folder_outside_of_any_repository(folder, now):
    report = checked(now, against="HEAD")
    assert rules(report) == ["BASELINE_NOT_FOUND"]
    assert "not a git repository" in report.findings[0].message


def test_modules_that_do_not_import_or_register_nothing(tmp_path, monkeypatch):
    (tmp_path / "acme_broken.py").write_text("1 / 0")
    (tmp_path / "acme_exits.py").write_text("raise SystemExit(3)")
    monkeypatch.syspath_prepend(tmp_path)
    codes, faults = code_of(["acme_broken", "acme_exits", "acme_missing"])
    assert codes == []
    assert [(one.rule, one.subject) for one in faults] == [
        ("MODULE_NOT_IMPORTABLE", "acme_broken"),
        ("MODULE_NOT_IMPORTABLE", "acme_exits"),
        ("MODULE_NOT_IMPORTABLE", "acme_missing"),
    ]
    assert "ZeroDivisionError" in faults[0].message
    _, (fault,) = code_of(["json"])
    assert "registers no type" in fault.message


def git(folder, *arguments):
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", "-C", str(folder), *who, *arguments], check=True, capture_output=True)


# -- against an earlier state ---------------------------------------------------------------------


@pytest.fixture
def committed(folder):
    git(folder.parent, "init", "-q")
    git(folder.parent, "add", "-A")
    git(folder.parent, "commit", "-q", "-m", "first")
    return folder


def test_the_same_state_is_clean(committed, now):
    assert not checked(now, against="HEAD", mode="full").findings
    assert not checked(now, against=str(committed)).findings
    assert not checked(now, against=str(committed.parent)).findings


def test_a_document_that_was_edited_and_locked_anew_is_found_by_the_rule_it_breaks(
    committed, tmp_path
):
    from dataclasses import replace

    changed = replace(T, fields=tuple(f for f in T.fields if f.name != "gain"))
    for path in sorted(committed.rglob("*.json")):
        path.unlink()
    frozen(committed, OPTIONS, changed)
    report = checked(code(committed, OPTIONS, changed), against="HEAD")
    assert set(rules(report)) == {"FIELD_NO_DELETE_UNLESS_RESERVED", "LOCK_HISTORY_LOST"}
    assert next(f for f in report.findings if f.field == "gain").witness is not None


def test_a_type_that_was_deleted_with_its_documents_and_its_lock_is_found(committed):
    for path in sorted(committed.rglob("*.json")):
        path.unlink()
    frozen(committed, OPTIONS)
    report = checked(code(committed, OPTIONS), against="HEAD")
    assert rules(report) == ["TYPE_NO_DELETE_UNLESS_ALIASED"]
    assert report.findings[0].subject == "acme.T"


def test_a_version_that_skips_one_since_then_is_found(committed):
    from dataclasses import replace

    frozen(committed, replace(T, version=3))
    now = code(committed, OPTIONS, replace(T, version=3))
    found = rules(checked(now, against="HEAD"))
    assert "VERSION_SKIPPED" in found


def test_nothing_is_checked_out(committed, now):
    before = sorted(committed.parent.rglob("*"))
    check([now], against="HEAD")
    assert sorted(committed.parent.rglob("*")) == before
