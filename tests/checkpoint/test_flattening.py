"""`flatten` and `unflatten`: for those who read and write files themselves."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from support.tensors import same_bytes

import aoserial
from aoserial.errors import AoserialError, UnsupportedTensorError


def weight():
    return aoserial.Int8Tensor.from_float(torch.randn(8, 16))


@pytest.fixture
def state():
    tied = weight()
    return {"a.weight": tied, "b.weight": weight(), "a.bias": torch.ones(8), "tied": tied}


def test_what_is_flattened_is_unflattened(state):
    plain, metadata = aoserial.flatten(state)
    assert all(type(tensor) is torch.Tensor for tensor in plain.values())
    assert all(isinstance(text, str) for text in metadata.values())
    again, leftover = aoserial.unflatten(plain, metadata)
    assert leftover == {}
    assert again.keys() == state.keys()
    assert again["tied"] is again["a.weight"]
    assert same_bytes(again["b.weight"].qdata, state["b.weight"].qdata)


def test_flattening_copies_nothing(state):
    plain, _ = aoserial.flatten(state)
    assert plain["a._weight_qdata"].data_ptr() == state["a.weight"].qdata.data_ptr()
    assert plain["a.bias"].data_ptr() == state["a.bias"].data_ptr()


def test_a_file_saved_by_safetensors_itself_loads(state, tmp_path):
    plain, metadata = aoserial.flatten(state)
    save_file(plain, tmp_path / "theirs", metadata=metadata)
    assert aoserial.load(tmp_path / "theirs").keys() == state.keys()
    assert aoserial.verify(tmp_path / "theirs").unverified


def test_our_own_file_read_by_safetensors_itself_unflattens(state, tmp_path):
    aoserial.save(state, tmp_path / "ours")
    with safe_open(tmp_path / "ours", "pt") as file:
        plain = {key: file.get_tensor(key) for key in file.keys()}
        again, leftover = aoserial.unflatten(plain, file.metadata())
    assert (again.keys(), leftover) == (state.keys(), {})


def test_of_a_shard_the_complete_comes_back_and_the_rest_is_left_over(state):
    plain, metadata = aoserial.flatten(state)
    scale = plain.pop("b._weight_scale")
    again, leftover = aoserial.unflatten(plain, metadata)
    assert again.keys() == {"a.weight", "a.bias", "tied"}
    assert leftover.keys() == {"b._weight_qdata"}
    rest, leftover = aoserial.unflatten(leftover | {"b._weight_scale": scale}, metadata)
    assert (rest.keys(), leftover) == ({"b.weight"}, {})


def test_torchaos_metadata_is_read_too():
    from pathlib import Path

    path = Path(__file__).parents[2] / "fixtures/torchao-0.18.0/mixed_model"
    with safe_open(path / "model.safetensors", "pt") as file:
        plain = {key: file.get_tensor(key) for key in file.keys()}
        state, leftover = aoserial.unflatten(plain, file.metadata())
    expected = torch.load(path / "expected.pt", weights_only=True)["dequantized"]
    assert leftover == {}
    for name, values in expected.items():
        assert same_bytes(state[name].dequantize(), values)


def test_an_inert_tensor_says_why_it_is_in_memory_too():
    described = {
        "_type": "Int4PlainInt32Tensor",
        "_data": {"block_size": [1, 8], "shape": [2, 8]},
        "_tensor_data_names": ["qdata", "scale", "zero_point"],
    }
    plain = {
        "m._w_qdata": torch.zeros(2, 1, dtype=torch.int32),
        "m._w_scale": torch.ones(1, 2),
        "m._w_zero_point": torch.zeros(1, 2),
    }
    metadata = {"tensor_names": '["m.w"]', "m.w": json.dumps(described)}
    state, leftover = aoserial.unflatten(plain, metadata)
    assert leftover == {}
    assert "in the order of an NPU" in state["m.w"].reason


def test_what_is_no_tensor_is_refused(state):
    plain, metadata = aoserial.flatten(state)
    with pytest.raises(UnsupportedTensorError, match="x: is a str"):
        aoserial.unflatten(plain | {"x": "text"}, metadata)
    with pytest.raises(AoserialError):
        aoserial.unflatten(plain, {"aoserial": "nonsense"})
