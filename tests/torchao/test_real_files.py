"""Every file of a real torchao release: it loads, and stands for the values torchao had for it.

The cases are those in fixtures/, and any folder of more that AOSERIAL_FIXTURES names.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.tensors import same_bytes

import aoserial

FIXTURES = Path(__file__).parents[2] / "fixtures"
READ_TYPES = ("Float8Tensor", "Int8Tensor")


def cases() -> Iterator[Path]:
    more = os.environ.get("AOSERIAL_FIXTURES")
    for root in (FIXTURES, Path(more)) if more else (FIXTURES,):
        for path in sorted(root.glob("torchao-*/*/model.safetensors")):
            case = json.loads((path.parent / "case.json").read_text())
            kinds = {key["class"].rpartition(".")[2] for key in case["keys"].values()}
            old_layout = case["torchao"].startswith("0.14")
            if kinds <= {"Tensor", *READ_TYPES} and not old_layout:
                yield path.parent


@pytest.fixture(params=list(cases()), ids=lambda path: f"{path.parent.name}-{path.name}")
def case(request) -> Path:
    return request.param


def expected_of(case: Path) -> dict:
    return torch.load(case / "expected.pt", weights_only=True)


def test_the_dequantized_values_are_torchaos_bit_for_bit(case):
    state = aoserial.load(case / "model.safetensors")
    values = expected_of(case)["dequantized"]
    assert values
    for name, expected in values.items():
        assert same_bytes(state[name].dequantize(), expected), name


def test_every_tensor_of_the_file_is_in_the_record_unchanged(case):
    inner = expected_of(case)["inner"]
    with aoserial.open(case / "model.safetensors") as checkpoint:
        held = {
            f"{name}.{part_name}": part.read()
            for name, record in checkpoint.records().items()
            for part_name, part in record.parts.items()
        }
        held |= {name: checkpoint[name] for name in checkpoint.catalog.plain}
    assert held.keys() == inner.keys()
    for name, expected in inner.items():
        assert same_bytes(held[name], expected), name


def test_migrating_moves_no_data_and_the_new_file_stands_for_the_same_values(case, tmp_path):
    new = tmp_path / "model.safetensors"
    plan = aoserial.migrate(case / "model.safetensors", new)
    assert plan.header_only
    assert aoserial.verify(new, deep=True)
    before, after = aoserial.load(case / "model.safetensors"), aoserial.load(new)
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert tensor.__tensor_flatten__() == after[name].__tensor_flatten__()
            assert same_bytes(tensor.dequantize(), after[name].dequantize())
        else:
            assert same_bytes(tensor, after[name])


def test_what_torchao_was_told_of_the_activation_is_in_the_tensor(case):
    described = json.loads((case / "case.json").read_text())["keys"]
    state = aoserial.load(case / "model.safetensors")
    for name, key in described.items():
        told = key.get("attributes", {}).get("act_quant_kwargs")
        if told is None:
            continue
        activation = state[name].activation
        if told["repr"] == "None":
            assert activation is None
            continue
        for kind in ("PerRow", "PerTensor", "PerBlock"):
            if f"granularity={kind}" in told["repr"]:
                assert activation.granularity.kind.name == kind.removeprefix("Per").lower()
        assert ("ASYMMETRIC" in told["repr"]) == (activation.mapping.name == "asymmetric")
        assert ("reduce_range=True" in told["repr"]) == activation.reduce_range
        assert ("hp_value_ub=8.0" in told["repr"]) == (activation.upper_bound == 8.0)
        assert activation.dtype in (torch.int8, torch.float8_e4m3fn)
