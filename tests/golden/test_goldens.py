"""Goldens recorded and checked inside one process, with a class that changes under them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import aoserial
from aoserial.errors import (
    CollisionError,
    FormatError,
    LimitError,
    MissingFileError,
    OptionError,
    SchemaError,
)
from aoserial.golden import Finding, GoldenCase, Store, find_settings, golden_case, uncovered
from aoserial.golden.cases import cases_of, load_cases
from aoserial.golden.recording import Written
from aoserial.golden.settings import Settings, settings_of
from aoserial.golden.suite import checks
from aoserial.golden.verifying import check_golden, check_today
from aoserial.schema import REGISTRY, to_document


class _Rounding(aoserial.VersionedTensor):
    """w = q * scale * factor, where the factor is what a release computes otherwise."""

    qdata: torch.Tensor
    scale: torch.Tensor
    note: str | None = None
    factor = 1.0

    def dequantize(self, dtype=None):
        return (self.qdata.float() * self.scale * self.factor).to(dtype or self.dtype)


Rounding = aoserial.register("golden.Rounding", version=1)(_Rounding)


def make(**more) -> dict[str, torch.Tensor]:
    codes = torch.randint(-8, 8, (4, 8), dtype=torch.int8)
    weight = Rounding(codes, torch.rand(4, 1), **more, shape=(4, 8), dtype=torch.float32)
    return {"m.weight": weight, "m.bias": torch.zeros(4)}


def case(**options) -> GoldenCase:
    return GoldenCase(**{"name": "rounding", "make": make} | options)


@pytest.fixture
def settings(tmp_path) -> Settings:
    root = tmp_path
    return Settings(
        root=root,
        cases=root / "cases.py",
        goldens=root / "goldens",
        schemas=None,
        types="",
        writer="here-1.0",
    )


def rules(findings: list[Finding]) -> list[str]:
    return [finding.rule for finding in findings]


def record(one: GoldenCase, settings: Settings) -> Store:
    store = Store(settings.goldens)
    assert rules(check_today(one, settings, store, record=True)) == ["GOLDEN_MISSING"]
    assert check_today(one, settings, store) == []
    return store


def reread(one: GoldenCase, store: Store) -> list[Finding]:
    (golden,) = store
    return check_golden(one, golden, store)


def test_a_golden_that_nothing_changed_about_is_clean(settings):
    one = case(
        inputs=lambda: torch.ones(2, 8),
        run=lambda state, x: torch.nn.functional.linear(x, state["m.weight"], state["m.bias"]),
        formats=("safetensors", "pt"),
    )
    store = record(one, settings)
    assert reread(one, store) == []
    (golden,) = store
    assert golden.versions == {"golden.Rounding@1"}
    assert golden.description["environment"]["torch"] == torch.__version__


def test_the_last_bit_of_a_value_counts(settings, monkeypatch):
    store = record(case(), settings)
    monkeypatch.setattr(Rounding, "factor", 1 + 2**-22)
    (finding,) = reread(case(), store)
    assert finding.rule == "GOLDEN_VALUES_DIFFER"
    assert "m.weight" in finding.message


def test_a_declared_rounding_is_allowed_and_no_more(settings, monkeypatch):
    store = record(case(), settings)
    monkeypatch.setattr(Rounding, "factor", 1 + 2**-10)
    assert reread(case(rounds={"golden.Rounding@1": 0.01}), store) == []
    assert rules(reread(case(rounds={"golden.Rounding@1": 1e-4}), store)) == [
        "GOLDEN_VALUES_DIFFER"
    ]
    assert rules(reread(case(rounds={"golden.Other@1": 0.01}), store)) == ["GOLDEN_VALUES_DIFFER"]


def test_an_optional_field_that_a_case_begins_to_use_changes_what_it_writes(settings):
    store = record(case(), settings)
    changed = case(make=lambda: make(note="new"))
    (finding,) = check_today(changed, settings, store, record=True)
    assert finding.rule == "GOLDEN_SHAPE_CHANGED"
    assert "attributes.note: not there then, str now" in finding.message
    assert len(list(store)) == 1


def test_a_type_that_is_not_registered_any_more_is_unreadable(settings, monkeypatch):
    store = record(case(), settings)
    monkeypatch.delitem(REGISTRY.types, "golden.Rounding")
    (finding,) = reread(case(retired=True), store)
    assert finding.rule == "GOLDEN_UNREADABLE"
    assert "no type 'golden.Rounding' is registered" in finding.message


def test_a_release_records_a_case_once(settings):
    store = record(case(), settings)
    with Written(case()) as written, pytest.raises(CollisionError, match="never rewritten"):
        written.record(store, "here-1.0")


def test_a_golden_is_small(settings):
    large = case(make=lambda: {**make(), "m.bias": torch.zeros(1 << 18)})
    (finding,) = check_today(large, settings, Store(settings.goldens), record=True)
    assert "and 1048576 are allowed" in finding.message
    with Written(large) as written, pytest.raises(LimitError):
        written.record(Store(settings.goldens), "here-1.0")


@pytest.mark.parametrize(
    ("gives", "match"),
    [
        (lambda: {"bias": torch.zeros(2)}, "plain tensors only"),
        (dict, "expected a module"),
        (lambda: 3, "expected a module"),
    ],
)
def test_a_case_that_guards_nothing_is_refused(gives, match):
    with pytest.raises(SchemaError, match=match), Written(case(make=gives)):
        pass


def test_inputs_without_a_way_to_run_are_refused(settings):
    one = case(inputs=lambda: torch.ones(2, 8))
    (finding,) = check_today(one, settings, Store(settings.goldens), record=True)
    assert "is no module: say run=" in finding.message
    assert not settings.goldens.exists()


def test_what_is_written_by_another_schema_than_the_frozen_one_is_found(settings, tmp_path):
    store = record(case(), settings)
    head = REGISTRY["golden.Rounding"].head
    fields = [
        replace(one, dtypes=("bfloat16",)) if one.name == "scale" else one for one in head.fields
    ]
    document = to_document(replace(head, fields=tuple(fields)))
    path = tmp_path / "schemas/golden.Rounding/1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(document))
    frozen = replace(settings, schemas=tmp_path / "schemas")
    (finding,) = check_today(case(), frozen, store)
    assert finding.rule == "GOLDEN_SHAPE_CHANGED"
    assert "another schema of golden.Rounding@1" in finding.message


def test_each_frozen_version_needs_a_golden(settings, tmp_path):
    store = record(case(), settings)
    for name in ("golden.Rounding/1", "golden.Rounding/2", "other.Thing/1"):
        path = tmp_path / f"schemas/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    (tmp_path / "schemas/lock.json").write_text("{}")
    schemas, held = tmp_path / "schemas", store.versions
    assert uncovered(schemas, held) == [("golden.Rounding", 2), ("other.Thing", 1)]
    assert uncovered(schemas, held, types="golden.") == [("golden.Rounding", 2)]


def test_what_is_said_to_be_unseen_is_not_asked_for_and_has_to_be_unseen(settings, tmp_path):
    record(case(), settings)
    for name in ("golden.Rounding/1", "golden.Rounding/2"):
        path = tmp_path / f"schemas/{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}")
    frozen = replace(settings, schemas=tmp_path / "schemas")
    told = {"golden.Rounding@2": "lost", "golden.Rounding@1": "lost", "golden.Rounding@3": "lost"}
    for unseen, found in (
        ({}, [("GOLDEN_MISSING", "golden.Rounding@2")]),
        ({"golden.Rounding@2": "lost"}, []),
        (told, [("GOLDEN_NOT_UNSEEN", f"golden.Rounding@{version}") for version in (1, 3)]),
    ):
        (complete,) = (
            check.run()
            for check in checks(replace(frozen, unseen=unseen), {})
            if check.name == "goldens[complete]"
        )
        assert [(one.rule, one.where) for one in complete] == found


def test_files_of_other_programs_show_what_their_manifest_says(settings, tmp_path):
    other = tmp_path / "fixtures"
    other.mkdir()
    cases = {"x-1.0/a": {"expected": {"model.pt": {"stored": ["golden.Rounding@2"]}}}}
    (other / "MANIFEST.json").write_text(json.dumps({"files": {}, "cases": cases}))
    assert Store(other).versions == {"golden.Rounding@2"}
    (other / "MANIFEST.json").write_text(json.dumps({"files": {}, "cases": {"x-1.0/a": {}}}))
    with pytest.raises(FormatError, match="does not say what its cases hold"):
        _ = Store(other).versions


def test_a_description_that_is_none_is_a_finding_of_the_golden_alone(settings):
    store = record(case(), settings)
    (golden,) = store
    (golden.folder / "golden.json").write_text("[]")
    found = {check.name: rules(check.run()) for check in checks(settings, {"rounding": case()})}
    assert found["rounding[here-1.0]"] == ["GOLDEN_EDITED"]
    assert found["rounding[today]"] == ["GOLDEN_UNREADABLE"]
    assert found["goldens[used]"] == []


# -- declaring ------------------------------------------------------------------------------------


def test_cases_are_the_decorated_functions_by_name():
    @golden_case
    def first(): ...

    @golden_case(name="other", retired=True, rounds={"a.B@1": 0.5})
    def second(): ...

    found = cases_of({"first": first, "second": second, "third": make, "again": first})
    assert [(one.name, one.retired, one.rounds) for one in found.values()] == [
        ("first", False, {}),
        ("other", True, {"a.B@1": 0.5}),
    ]


def test_two_cases_of_one_name_and_names_that_are_no_folders_are_refused():
    one, other = (golden_case(name="same")(lambda: None) for _ in range(2))
    with pytest.raises(SchemaError, match="two golden cases are called same"):
        cases_of({"one": one, "other": other})
    for name in ("../up", "", "a/b", "x" * 101):
        with pytest.raises(SchemaError, match="cannot name a golden case"):
            GoldenCase(name=name, make=make)
    with pytest.raises(SchemaError, match=r"formats \('gguf',\) are not of safetensors, pt"):
        GoldenCase(name="x", make=make, formats=("gguf",))


def test_a_file_without_cases_or_no_file_is_an_error(tmp_path):
    with pytest.raises(MissingFileError):
        load_cases(tmp_path / "cases.py")
    (tmp_path / "cases.py").write_text("x = 1\n")
    with pytest.raises(SchemaError, match="declares no golden case"):
        load_cases(tmp_path / "cases.py")


def project(root: Path, text: str) -> Path:
    (root / "pyproject.toml").write_text(text)
    return root


def test_settings_are_those_of_the_project(tmp_path):
    text = '[project]\nname = "acme"\nversion = "1.2"\n[tool.aoserial]\ncases = "c.py"\n'
    found = find_settings(project(tmp_path, text))
    assert found is not None
    assert (found.writer, found.goldens, found.schemas) == ("acme-1.2", tmp_path / "goldens", None)
    (tmp_path / "schemas").mkdir()
    assert settings_of(tmp_path).schemas == tmp_path / "schemas"


def test_who_records_nothing_need_not_know_as_which_release(tmp_path):
    found = find_settings(project(tmp_path, '[tool.aoserial]\ncases = "c.py"\n'), records=False)
    assert found is not None
    assert found.writer == ""


def test_a_project_that_declares_no_cases_has_no_settings(tmp_path):
    assert find_settings(tmp_path) is None
    assert find_settings(project(tmp_path, '[tool.aoserial]\nschemas = "s"\n')) is None
    with pytest.raises(MissingFileError, match="set cases under"):
        settings_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("cases = 3\n", "tool.aoserial.cases is 3"),
        ('cases = "c.py"\n', "set writer under"),
        ('cases = "c.py"\nwriter = "../acme"\n', "cannot name a folder"),
        ("cases = \n", "Invalid value"),
        ('cases = "c.py"\ngolden = "g"\n', "tool.aoserial has no 'golden'; its keys are cases, "),
        ('cases = "c.py"\nwriter = "a-1"\nmore_goldens = "g"\n', "expected a list of folders"),
        ('cases = "c.py"\nwriter = "a-1"\nunseen = ["x"]\n', "expected a table"),
        ('cases = "c.py"\nwriter = "a-1"\nunseen = {"a.B" = "x"}\n', "expected a version as"),
        ('cases = "c.py"\nwriter = "a-1"\nunseen = {"a.B@1" = ""}\n', "expected a version as"),
        ('cases = "c.py"\n[project]\nname = "no-such-package-here"\n', "set writer under"),
    ],
)
def test_settings_that_are_wrong_say_where(text, match, tmp_path):
    with pytest.raises(OptionError, match=match):
        find_settings(project(tmp_path, f"[tool.aoserial]\n{text}"))
