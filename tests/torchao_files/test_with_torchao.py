"""Against the real torchao 0.18: it reads what we write for it, and we read what it writes.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support.cases import FIXTURES, case_id, safetensors_cases
from support.tensors import same_bytes

import aoserial
from aoserial.errors import CollisionError, TensorNameError, UnsupportedTensorError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    torchao = pytest.importorskip(
        "torchao", reason="torchao is NOT installed: nothing is checked against the real one"
    )
    from torchao.prototype.safetensors.safetensors_support import (
        flatten_tensor_state_dict,
        unflatten_tensor_state_dict,
    )
    from torchao.prototype.safetensors.safetensors_utils import is_metadata_torchao

pytestmark = [
    pytest.mark.skipif(
        not torchao.__version__.startswith("0.18"), reason=f"torchao is {torchao.__version__}"
    ),
    pytest.mark.filterwarnings("ignore"),
]


def read_by_torchao(path: Path) -> dict[str, torch.Tensor]:
    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        state, leftover = unflatten_tensor_state_dict(tensors, file.metadata())
    assert leftover == {}
    return state


def fields_of(tensor: torch.Tensor) -> dict[str, object]:
    """Every field of a live tensor of torchao's."""
    names = [
        *tensor.tensor_data_names,
        *getattr(tensor, "optional_tensor_data_names", []),
        *tensor.tensor_attribute_names,
        *getattr(tensor, "optional_tensor_attribute_names", []),
    ]
    return {name: getattr(tensor, name) for name in names}


def assert_equal(left: torch.Tensor, right: torch.Tensor) -> None:
    assert type(left) is type(right)
    if type(left) is torch.Tensor:
        assert same_bytes(left, right)
        return
    assert (left.shape, left.dtype) == (right.shape, right.dtype)
    ours, theirs = fields_of(left), fields_of(right)
    for name, value in ours.items():
        if isinstance(value, torch.Tensor):
            assert same_bytes(value, theirs[name]), name
        elif isinstance(value, list | tuple):
            assert list(value) == list(theirs[name]), name
        else:
            assert value == theirs[name], name


# what torchao 0.18 has under another class, name or layout than the release that wrote the file
CHANGED = ("tile_packed", "module_int4wo", "swizzled", "config", "fbgemm")


# granularities that torchao writes and its own reader does not know
UNKNOWN_TO_IT = ("_block_", "_token_axis_")


def readable_by_torchao(case: Path) -> bool:
    unknown = any(word in case.name for word in UNKNOWN_TO_IT)
    return "0.14" not in case.parent.name and not unknown


@pytest.fixture(params=[*filter(readable_by_torchao, safetensors_cases())], ids=case_id)
def case(request) -> Path:
    return request.param


def test_torchao_reads_what_we_write_for_it_as_it_reads_the_original(case, tmp_path):
    state = aoserial.load(case / "model.safetensors")
    aoserial.save(state, tmp_path / "ours", layout="torchao")
    written = read_by_torchao(tmp_path / "ours")
    assert written.keys() == state.keys()
    if not any(word in case.name for word in CHANGED):
        original = read_by_torchao(case / "model.safetensors")
        for name, tensor in original.items():
            assert_equal(written[name], tensor)
    again = aoserial.load(tmp_path / "ours")
    for name, tensor in state.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(again[name].dequantize(), tensor.dequantize())


def test_our_flatten_is_torchaos_to_the_letter_and_to_the_bit(case):
    live = read_by_torchao(case / "model.safetensors")
    theirs, their_metadata = flatten_tensor_state_dict(live)
    ours, our_metadata = aoserial.torchao.flatten_tensor_state_dict(live)
    assert ours.keys() == theirs.keys()
    for key, tensor in theirs.items():
        assert same_bytes(ours[key], tensor)
    assert is_metadata_torchao(our_metadata)
    again, leftover = unflatten_tensor_state_dict(ours, our_metadata)
    assert leftover == {}
    for name, tensor in unflatten_tensor_state_dict(theirs, their_metadata)[0].items():
        assert_equal(again[name], tensor)


def test_our_unflatten_reads_what_torchao_flattens(case):
    live = read_by_torchao(case / "model.safetensors")
    tensors, metadata = flatten_tensor_state_dict(live)
    assert aoserial.torchao.is_metadata_torchao(metadata)
    state, leftover = aoserial.torchao.unflatten_tensor_state_dict(tensors, metadata)
    assert leftover == {}
    expected = aoserial.load(case / "model.safetensors")
    for name, tensor in expected.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(state[name].dequantize(), tensor.dequantize())


def int8_of_torchao() -> torch.Tensor:
    from torchao.quantization import Int8Tensor, PerRow

    return Int8Tensor.from_hp(torch.randn(16, 32, dtype=torch.bfloat16), granularity=PerRow())


def test_a_live_tensor_of_torchao_is_saved_as_ours(tmp_path):
    live = int8_of_torchao()
    aoserial.save({"m.weight": live}, tmp_path / "file")
    loaded = aoserial.load(tmp_path / "file")["m.weight"]
    assert isinstance(loaded, aoserial.Int8Tensor)
    assert same_bytes(loaded.dequantize(), live.dequantize())


def test_names_that_torchao_loses_are_kept_by_us_and_refused_in_its_layout(tmp_path):
    state = {"a.weight": int8_of_torchao(), "a.weight_g": int8_of_torchao()}
    tensors, metadata = flatten_tensor_state_dict(state)
    assert unflatten_tensor_state_dict(tensors, metadata)[0].keys() == {"a.weight_g"}  # lost
    again, leftover = aoserial.torchao.unflatten_tensor_state_dict(tensors, metadata)
    assert (again.keys(), leftover) == (state.keys(), {})
    save_file(tensors, tmp_path / "theirs", metadata=metadata)
    assert aoserial.load(tmp_path / "theirs").keys() == state.keys()
    with pytest.raises(CollisionError, match="torchao's reader would lose it"):
        aoserial.save(state, tmp_path / "x", layout="torchao")
    with pytest.raises(TensorNameError, match="has no dot"):
        aoserial.save({"weight": int8_of_torchao()}, tmp_path / "x", layout="torchao")
    assert not (tmp_path / "x").exists()


def test_a_plain_tensor_under_a_parts_key_is_an_error_where_torchao_keeps_the_last():
    state = {"m.weight": int8_of_torchao(), "m._weight_qdata": torch.ones(3)}
    assert flatten_tensor_state_dict(state)[0]["m._weight_qdata"].shape == (3,)
    with pytest.raises(CollisionError, match="two tensors would lie under 'm._weight_qdata'"):
        aoserial.torchao.flatten_tensor_state_dict(state)


def test_settings_that_torchao_writes_and_cannot_read_are_read_by_us_and_refused_for_it(tmp_path):
    case = FIXTURES / "torchao-0.15.0/float8da_float8w_block_v2"
    with pytest.raises(ValueError, match="Failed to find class PerBlock"):
        read_by_torchao(case / "model.safetensors")
    state = aoserial.load(case / "model.safetensors")
    assert state["0.weight"].activation.granularity.block_size == (1, 128)
    with pytest.raises(UnsupportedTensorError, match="reader does not know torchao.PerBlock"):
        aoserial.save(state, tmp_path / "x", layout="torchao")


def test_flattening_copies_nothing():
    live = int8_of_torchao()
    tensors, _ = aoserial.torchao.flatten_tensor_state_dict({"m.weight": live})
    assert tensors["m._weight_qdata"].data_ptr() == live.qdata.data_ptr()


def test_a_shards_incomplete_tensors_are_left_over():
    tensors, metadata = flatten_tensor_state_dict({"m.weight": int8_of_torchao()})
    scale = tensors.pop("m._weight_scale")
    state, leftover = aoserial.torchao.unflatten_tensor_state_dict(tensors, metadata)
    assert state == {}
    state, leftover = aoserial.torchao.unflatten_tensor_state_dict(
        leftover | {"m._weight_scale": scale}, metadata
    )
    assert (state.keys(), leftover) == ({"m.weight"}, {})
