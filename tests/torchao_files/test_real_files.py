"""Every file of a real torchao release: it loads, and stands for the values torchao had for it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from support.cases import FIXTURES, case_id, described, safetensors_cases
from support.tensors import same_bytes

import aoserial


@pytest.fixture(params=list(safetensors_cases()), ids=case_id)
def case(request) -> Path:
    return request.param


def expected_of(case: Path) -> dict:
    return torch.load(case / "expected.pt", weights_only=True)


def assume_for(case: Path) -> dict[str, str]:
    """What has to be said of files that do not tell which release's arithmetic they are for."""
    old = described(case)["torchao"] < "0.18"
    return {"scale_product_dtype": "bfloat16"} if old and "nvfp4" in case.name else {}


def test_the_dequantized_values_are_torchaos_bit_for_bit(case):
    state = aoserial.load(case / "model.safetensors", assume=assume_for(case))
    values = expected_of(case)["dequantized"]
    quantized = {n for n, tensor in state.items() if isinstance(tensor, aoserial.VersionedTensor)}
    assert values.keys() == quantized
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


# types whose parts are kept as torchao laid them out
SAME_BYTES = ("Float8Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor")


def test_the_migrated_file_stands_for_the_same_values(case, tmp_path):
    new = tmp_path / "model.safetensors"
    plan = aoserial.migrate(case / "model.safetensors", new)
    for row in plan.rows:
        if row.source.partition("@")[0].removeprefix("torchao.") in SAME_BYTES:
            assert row.header_only
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
    state = aoserial.load(case / "model.safetensors")
    for name, key in described(case)["keys"].items():
        told = key.get("attributes", {}).get("act_quant_kwargs")
        if "MXTensor" in key["class"] or "NVFP4Tensor" in key["class"]:
            continue  # of groups; see test_the_activation_of_fp4_and_mx_weights_is_kept
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


def test_the_activation_of_fp4_and_mx_weights_is_kept():
    state = aoserial.load(FIXTURES / "torchao-0.18.0/mx_config_fp4/model.safetensors")
    activation = state["0.weight"].activation
    assert activation.dtype is torch.float4_e2m1fn_x2
    assert activation.granularity.group_size == 32
    assert activation.scale_mode.name == "rceil"
    assert activation.kernel.swizzled_scales
    state = aoserial.load(FIXTURES / "torchao-0.18.0/nvfp4_config/model.safetensors")
    activation = state["0.weight"].activation
    assert (activation.granularity.group_size, activation.tensor_scale) == (16, True)


def test_every_activation_setting_survives_load_and_save(case, tmp_path):
    before = aoserial.load(case / "model.safetensors")
    aoserial.save(before, tmp_path / "again")
    after = aoserial.load(tmp_path / "again")
    for name, tensor in before.items():
        assert getattr(tensor, "activation", None) == getattr(after[name], "activation", None)
        assert getattr(tensor, "kernel", None) == getattr(after[name], "kernel", None)


def test_the_arithmetic_that_was_assumed_is_reported():
    with aoserial.open(FIXTURES / "torchao-0.17.0/nvfp4_config/model.safetensors") as checkpoint:
        assert checkpoint.report.assumed == {"scale_product_dtype=float32": 1}
