"""`aoserial history`: the line of a type's versions, as the tables tell it."""

from __future__ import annotations

import json

import pytest

from aoserial.checkpoint.history import history, types
from aoserial.cli.app import run
from aoserial.errors import UnknownTypeError
from aoserial.migrations import STEPS, Steps, migration
from aoserial.schema import REGISTRY, Schema, tensor


def test_all_types_are_listed_a_line_each_with_who_wrote_them(capsys):
    assert run(["history"]) == 0
    lines = {line.split()[0]: line for line in capsys.readouterr().out.splitlines()}
    assert "torchao 0.2 to 0.17" in lines["torchao.AffineQuantizedTensor"]
    assert "aoserial.Int8Tensor" in lines
    assert "aoserial.Activation" not in lines  # an attribute of tensors


def test_a_version_names_its_releases_its_fields_its_step_and_what_that_repairs(capsys):
    assert run(["history", "NVFP4Tensor"]) == 2
    assert "aoserial.NVFP4Tensor, torchao.NVFP4Tensor" in capsys.readouterr().err
    assert run(["history", "torchao.NVFP4Tensor"]) == 0
    shown = capsys.readouterr().out
    for words in (
        "version 2: torchao 0.13 and 0.14: even k in the high nibble",
        "written by torchao 0.13 to 0.14, pickle: has qdata, _scale_e4m3",
        "no more: _data, mm_config",
        "→ put_even_codes_low, to torchao.NVFP4Tensor@3",
        "repairs FP4 nibble order",
        "repairs swizzle flag",
        "written by torchao 0.17 and later, safetensors",
        "asks scale_product_dtype (float32 or bfloat16 or float16, float32 if nobody says)",
    ):
        assert words in shown


def test_a_lossy_step_says_what_it_loses(capsys):
    assert run(["history", "FbgemmFp8Tensor"]) == 0
    assert "lossy: the bound of the activation's magnitude" in capsys.readouterr().out


def test_as_json_it_is_for_machines(capsys):
    assert run(["history", "--json", "AffineQuantizedTensor"]) == 0
    told = json.loads(capsys.readouterr().out)
    second = told["versions"][1]
    assert second["written"][0]["era"]["first"] == "0.3"
    assert second["step"]["name"] == "name_the_layout"
    assert "FLOAT was pickled as 1" in second["step"]["repairs"]
    assert {"name", "kind", "required", "doc"} == second["fields"][0].keys()
    assert run(["history", "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == len(types())


def test_a_class_is_found_by_the_path_under_which_it_was_pickled():
    assert history("torchao.dtypes.nf4tensor.NF4Tensor").type == "torchao.NF4Tensor"


def test_an_unknown_type_is_an_error_that_names_those_that_are_near(capsys):
    with pytest.raises(UnknownTypeError, match="aoserial.Int8Tensor"):
        history("acme.Int8Tensor")
    assert run(["history", "acme.Int8Tensor"]) == 2
    assert "nearest are" in capsys.readouterr().err


def test_a_type_of_ones_own_has_its_steps_and_versions_without_documents(monkeypatch, capsys):
    monkeypatch.setattr(REGISTRY, "types", dict(REGISTRY.types))
    monkeypatch.setattr(STEPS, "table", dict(STEPS.table))
    REGISTRY.add(
        Schema(type="acme.T", version=2, fields=(tensor("codes", doc="anew"),)), owner="acme"
    )

    @migration("acme.T", 1, 2, repairs="signs: version 1 had none")
    def give_signs(record):
        """Codes got signs.

        Raises:
            Nothing: that people want to know here.
        """
        return record.at(2)

    assert run(["history", "acme.T"]) == 0
    shown = capsys.readouterr().out
    assert "version 1\n  its fields are not known" in shown
    assert "→ give_signs, to acme.T@2\n    Codes got signs.\n    repairs signs" in shown
    assert "Raises" not in shown


def test_every_step_says_what_it_does():
    for type_id in {kind for kind, _ in STEPS.table if kind.startswith("torchao.")}:
        for version in history(type_id).versions:
            assert version.step is None or version.step.does, version


def test_what_a_step_repairs_is_kept_with_it():
    steps = Steps()
    migration("acme.U", 1, 2, repairs="a break", steps=steps)(lambda record: record)
    assert steps.table[("acme.U", 1)].repairs == "a break"
