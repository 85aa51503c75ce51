"""`load` and `open`: all of a checkpoint, some of it, or one tensor at a time."""

from __future__ import annotations

import copy

import pytest
import torch
from support.tensors import same_bytes

import aoserial
from aoserial.errors import (
    NotARecordError,
    OptionError,
    UnknownNameError,
    UnsupportedOperationError,
)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    state = {"a.weight": weight, "b.weight": weight, "a.bias": torch.ones(8), "n": torch.tensor(3)}
    aoserial.save(state, path, metadata={"note": "mine"})
    return path


def test_a_plain_dict_of_everything_is_built(path):
    state = aoserial.load(path)
    assert type(state) is dict
    assert state.keys() == {"a.weight", "b.weight", "a.bias", "n"}


def test_only_the_named_tensors_are_built_in_the_order_of_their_names(path):
    assert list(aoserial.load(path, names=["n", "a.weight"])) == ["n", "a.weight"]
    assert list(aoserial.load(path, names=["b.weight"])) == ["b.weight"]  # tied to a.weight
    assert aoserial.load(path, names=[]) == {}


def test_all_unknown_names_come_in_one_error_before_anything_is_read(path):
    with pytest.raises(aoserial.Faults) as caught:
        aoserial.load(path, names=["nope", "a.weight", "neither"])
    assert {fault.location.name for fault in caught.value.exceptions} == {"nope", "neither"}
    assert all(isinstance(fault, KeyError) for fault in caught.value.exceptions)


def test_checksums_are_compared_when_asked(path):
    assert aoserial.load(path, verify="checksums").keys() == aoserial.load(path).keys()


def test_tensors_go_to_the_device_asked_for(path):
    state = aoserial.load(path, device="meta")
    assert {tensor.device.type for tensor in state.values()} == {"meta"}
    assert state["a.weight"].qdata.device.type == "meta"


def test_what_is_tied_is_one_tensor_on_another_device_too(tmp_path):
    plain = torch.ones(4)
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    state = {"a": plain, "b": plain, "w": weight, "v": weight}
    aoserial.save(state, tmp_path / "x.safetensors")
    found = aoserial.load(tmp_path / "x.safetensors", device="meta")
    assert found["a"] is found["b"]
    assert found["w"] is found["v"]


def test_a_parameter_is_one_on_another_device_too(tmp_path):
    torch.save({"w": torch.nn.Parameter(torch.ones(4))}, tmp_path / "x.pt")
    found = aoserial.load(tmp_path / "x.pt", device="meta")["w"]
    assert isinstance(found, torch.nn.Parameter)
    assert found.is_leaf
    assert found.device.type == "meta"


def test_progress_ends_at_the_whole(path):
    seen = []
    aoserial.load(path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)


@pytest.mark.parametrize(
    ("option", "error"),
    [
        ({"into": "somebody"}, OptionError),
        ({"verify": "thoroughly"}, UnsupportedOperationError),
        ({"assume": {"int4_cpu_isa": "avx9"}}, OptionError),
    ],
)
def test_an_option_this_version_does_not_have_is_refused_and_not_ignored(path, option, error):
    with pytest.raises(error):
        aoserial.load(path, **option)


def test_a_file_of_plain_tensors_alone_is_read_as_it_is(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(3), "y": torch.zeros(2, 2)}, tmp_path / "plain", metadata={"k": "v"})
    state = aoserial.load(tmp_path / "plain")
    assert torch.equal(state["x"], torch.ones(3))
    with aoserial.open(tmp_path / "plain") as checkpoint:
        assert checkpoint.report.layout == "plain"
        assert checkpoint.metadata == {"k": "v"}


# -- open ------------------------------------------------------------------------------------------


def test_an_open_checkpoint_is_a_mapping(path):
    with aoserial.open(path) as checkpoint:
        assert len(checkpoint) == 4
        assert set(checkpoint) == {"a.weight", "b.weight", "a.bias", "n"}
        assert "b.weight" in checkpoint
        assert "c" not in checkpoint
        assert isinstance(checkpoint["b.weight"], aoserial.Int8Tensor)
        assert checkpoint["n"].item() == 3
        assert checkpoint.metadata["note"] == "mine"


def test_a_name_that_is_not_there_is_a_key_error(path):
    with aoserial.open(path) as checkpoint:
        for access in (checkpoint.__getitem__, checkpoint.record):
            with pytest.raises(UnknownNameError, match="no tensor 'nope'") as caught:
                access("nope")
            assert isinstance(caught.value, KeyError)
        assert checkpoint.get("nope") is None


def test_tensors_outlive_the_open_file(path):
    with aoserial.open(path) as checkpoint:
        weight = checkpoint["a.weight"]
    assert same_bytes(weight.qdata, aoserial.load(path)["a.weight"].qdata)
    assert copy.deepcopy(weight).dequantize().shape == (8, 16)


def test_a_record_is_plain_data_that_is_read_when_asked(path):
    with aoserial.open(path) as checkpoint:
        record = checkpoint.record("a.weight")
        assert (record.type, record.version) == ("aoserial.Int8Tensor", 1)
        assert (record.shape, record.dtype) == ((8, 16), "float32")
        assert record.attributes == {"block_size": (1, 16)}
        assert record.parts["qdata"].read().dtype is torch.int8
        assert checkpoint.records().keys() == {"a.weight"}  # b.weight is a tie


def test_a_plain_tensor_has_no_record(path):
    with aoserial.open(path) as checkpoint:
        with pytest.raises(NotARecordError, match="a.bias: is a plain tensor") as caught:
            checkpoint.record("a.bias")
        assert isinstance(caught.value, KeyError)


def test_a_migrated_record_is_at_the_head_and_the_stored_one_is_not():
    from aoserial.cli.demo import _fixture

    with aoserial.open(_fixture("torchao-0.15.0/float8wo_v2") / "model.safetensors") as checkpoint:
        assert checkpoint.record("0.weight").type == "torchao.Float8Tensor"
        assert checkpoint.record("0.weight", migrated=True).type == "aoserial.Float8Tensor"


def test_an_open_checkpoint_saved_again_keeps_its_metadata_and_trail(path, tmp_path):
    with aoserial.open(path) as checkpoint:
        aoserial.save(checkpoint, tmp_path / "again")
    assert (tmp_path / "again").read_bytes() == path.read_bytes()
