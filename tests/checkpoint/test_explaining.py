"""Which kernel each weight of a file would run on, without reading it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from support.cases import safetensors_cases
from torch import nn

import aoserial
from aoserial.checkpoint.explaining import explain_kernels
from aoserial.cli.app import run
from aoserial.kernels import explain


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    w = torch.randn(64, 128, dtype=torch.bfloat16)
    state = {
        "a": aoserial.Int8Tensor.from_float(w),
        "b": aoserial.Int8Tensor.from_float(w),
        "experts": aoserial.Float8Tensor.from_float(w.expand(3, 64, 128).contiguous()),
        "nf4": aoserial.NF4Tensor.from_float(torch.randn(128, 128)),
        "plain": nn.Parameter(w),
    }
    aoserial.save(state, tmp_path / "x.safetensors")
    return tmp_path / "x.safetensors"


def test_weights_that_are_alike_share_a_row_and_say_what_explain_says(saved: Path) -> None:
    rows = {row.names[0]: row for row in explain_kernels(saved)}
    assert rows["a"].names == ("a", "b")
    assert rows["experts"].shape == (64, 128)
    assert rows["nf4"].answers == {}
    state = aoserial.load(saved)
    told = explain(state["a"])
    assert told.splitlines() == [
        f"{name}: {refusal or 'takes it'}" for name, refusal in rows["a"].answers.items()
    ]
    assert rows["a"].backend in rows["a"].answers


def test_other_devices_are_asked_for_by_name(saved: Path) -> None:
    here, there = explain_kernels(saved), explain_kernels(saved, device="sm90")
    assert [row.names for row in here] == [row.names for row in there]
    assert here[0].answers.keys() == there[0].answers.keys()
    with pytest.raises(ValueError, match="no device 'sm1'; there are sm80"):
        explain_kernels(saved, device="sm1")


@pytest.mark.parametrize("case", list(safetensors_cases())[:6], ids=lambda case: case.name)
def test_a_file_of_torchao_is_told_of_as_what_it_becomes(case: Path) -> None:
    rows = explain_kernels(case / "model.safetensors")
    assert rows
    assert all(row.type.startswith("aoserial.") and row.backend for row in rows if row.answers)


def test_inspect_shows_kernels(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["inspect", str(saved), "--kernels"]) == 0
    shown = capsys.readouterr().out
    assert "a and 1 more: aoserial.Int8Tensor [64, 128] runs on " in shown
    assert "  reference: takes it" in shown
    assert "the type shows no weight to kernels" in shown
    assert run(["inspect", str(saved), "--kernels", "--json", "--device", "gfx942"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert rows[0]["answers"]["reference"] is None
    assert run(["inspect", str(saved), "--kernels", "--device", "abacus"]) == 2
    assert "no device 'abacus'" in capsys.readouterr().err
