"""Pickled checkpoints by the same road as others: load, open, tree, inspect, plan, verify, save."""

from __future__ import annotations

import argparse
import enum
import zipfile
from collections import OrderedDict
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import pytest
import torch
from support.tensors import same_bytes

import aoserial
from aoserial import Faults, InertTensor, Int8Tensor
from aoserial.errors import CollisionError, IntegrityError, UnknownTypeError, UnsupportedTensorError
from aoserial.storage.pickle import EnumValue, ObjectValue


class Colour(enum.Enum):
    RED = 1


class Point(NamedTuple):
    x: int
    y: torch.Tensor


@dataclass
class Config:
    lr: float
    weight: torch.Tensor


class Wrapper(torch.Tensor):
    """A tensor subclass that nobody registered."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, (3, 2), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner
        self.bits = 4

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


@pytest.fixture
def saved(tmp_path):
    """Saves an object by torch.save and gives its path."""

    def save(value):
        torch.save(value, tmp_path / "checkpoint.pt")
        return tmp_path / "checkpoint.pt"

    return save


def training():
    """A whole training checkpoint."""
    model = torch.nn.Linear(4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "args": argparse.Namespace(lr=0.1, mean=torch.ones(2)),
        "config": Config(0.5, torch.arange(3.0)),
        "point": Point(1, torch.zeros(2)),
        "colour": Colour.RED,
        "rng": numpy.arange(4),
        "dtype": torch.bfloat16,
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
        "history": [0.5, (1, "a"), b"raw", {1, 2}, None],
        7: torch.full((2,), 7.0),
    }


def test_load_gives_every_tensor_under_its_dotted_name_in_the_order_of_the_file(saved):
    held = training()
    state = aoserial.load(saved(held))
    assert list(state) == [
        "model.weight",
        "model.bias",
        *(f"optimizer.state.{n}.{k}" for n in (0, 1) for k in ("step", "exp_avg", "exp_avg_sq")),
        "7",
    ]
    assert same_bytes(state["model.weight"], held["model"]["weight"])
    assert same_bytes(state["optimizer.state.1.exp_avg"], held["optimizer"]["state"][1]["exp_avg"])


def test_names_choose_and_unknown_ones_are_refused(saved):
    path = saved(training())
    assert list(aoserial.load(path, names=["7", "model.bias"])) == ["7", "model.bias"]
    with pytest.raises(KeyError, match="no such tensor"):
        aoserial.load(path, names=["epoch"])


def test_the_tree_has_its_own_keys_plain_data_and_inert_objects(saved):
    held = training()
    with aoserial.open(saved(held)) as checkpoint:
        tree = checkpoint.tree
    assert list(tree) == list(held)
    assert type(tree["model"]) is OrderedDict
    assert tree["model"]._metadata == held["model"]._metadata
    assert tree["optimizer"]["param_groups"] == held["optimizer"]["param_groups"]
    assert same_bytes(
        tree["optimizer"]["state"][0]["exp_avg"], held["optimizer"]["state"][0]["exp_avg"]
    )
    for key in ("epoch", "dtype", "size", "device", "history"):
        assert tree[key] == held[key]
        assert type(tree[key]) is type(held[key])
    assert numpy.array_equal(tree["rng"], held["rng"])
    assert isinstance(tree["args"], ObjectValue)
    assert tree["args"].path == "argparse.Namespace"
    assert tree["args"].fields["lr"] == 0.1
    assert same_bytes(tree["args"].fields["mean"], torch.ones(2))
    assert tree["config"].path.endswith("test_pickles.Config")
    assert tree["colour"] == EnumValue(tree["colour"].cls, 1)
    fresh = torch.nn.Linear(4, 3)
    fresh.load_state_dict(tree["model"])
    assert same_bytes(fresh.weight.detach(), held["model"]["weight"])


@pytest.mark.parametrize("what", ["checkpoint", "tree"])
def test_saved_again_it_means_what_it_meant(saved, tmp_path, what):
    held = training()
    with aoserial.open(saved(held)) as checkpoint:
        aoserial.save(
            checkpoint if what == "checkpoint" else checkpoint.tree, tmp_path / "again.pt"
        )
    again = torch.load(tmp_path / "again.pt", weights_only=False)
    assert list(again) == list(held)
    assert vars(again["args"]).keys() == vars(held["args"]).keys()
    assert same_bytes(again["args"].mean, held["args"].mean)
    assert again["config"].lr == 0.5
    assert same_bytes(again["config"].weight, held["config"].weight)
    assert type(again["point"]) is Point
    assert again["colour"] is Colour.RED
    assert again["history"] == held["history"]
    assert again["model"]._metadata == held["model"]._metadata
    assert numpy.array_equal(again["rng"], held["rng"])
    assert same_bytes(again["model"]["weight"], held["model"]["weight"])


def test_what_is_one_in_the_file_is_one_in_memory(saved):
    base = torch.arange(12.0)
    held = {"a": base[:4], "b": base[2:6], "c": base.view(3, 4).t(), "d": base[:4]}
    state = aoserial.load(saved(held))
    assert state["a"] is state["d"]
    state["a"][2] = 100
    assert state["b"][0] == 100
    assert state["c"].stride() == (1, 4)
    assert state["c"][2, 0] == 100
    assert same_bytes(state["c"].contiguous()[0], held["c"].contiguous()[0])


def test_an_expanded_tensor_costs_what_it_cost(saved):
    held = torch.ones(1).expand(1 << 40)
    (state,) = aoserial.load(saved({"w": held})).values()
    assert state.shape == held.shape
    assert state.stride() == (0,)
    assert state.untyped_storage().nbytes() == 4


def test_parameters_come_back_as_parameters_with_their_flag(saved):
    held = {
        "p": torch.nn.Parameter(torch.ones(2)),
        "frozen": torch.nn.Parameter(torch.ones(2), requires_grad=False),
        "leaf": torch.ones(2, requires_grad=True),
        "plain": torch.ones(2),
    }
    state = aoserial.load(saved(held))
    for name, tensor in held.items():
        assert type(state[name]) is type(tensor)
        assert state[name].requires_grad == tensor.requires_grad


def test_a_subclass_nobody_registered_is_inert_and_is_saved_as_it_was(saved, tmp_path):
    path = saved({"w": Wrapper(torch.arange(6.0)), "b": torch.ones(1)})
    with pytest.raises(UnknownTypeError, match="Wrapper"):
        aoserial.load(path)
    state = aoserial.load(path, strict=False)
    inert = state["w"]
    assert isinstance(inert, InertTensor)
    assert inert.record.type.endswith("test_pickles.Wrapper")
    assert inert.record.attributes == {"bits": 4}
    assert same_bytes(inert.record.parts["inner"].read(), torch.arange(6.0))
    assert "Wrapper" in repr(inert)
    aoserial.save(state, tmp_path / "again.pt")
    again = torch.load(tmp_path / "again.pt", weights_only=False)["w"]
    assert type(again) is Wrapper
    assert again.bits == 4
    assert same_bytes(again.inner, torch.arange(6.0))


def test_an_unknown_subclass_survives_a_safetensors_file(saved, tmp_path):
    state = aoserial.load(saved({"m.w": Wrapper(torch.arange(6.0))}), strict=False)
    aoserial.save(state, tmp_path / "w.safetensors")
    again = aoserial.load(tmp_path / "w.safetensors", strict=False)["m.w"]
    assert again.record.type == state["m.w"].record.type
    assert again.record.attributes == state["m.w"].record.attributes
    with pytest.raises(UnsupportedTensorError, match="no form in a pickle"):
        aoserial.save({"m.w": again}, tmp_path / "w.pt")


@pytest.mark.parametrize(
    "made", [lambda: torch.ones(3).to_sparse(), lambda: torch.ones(3, device="meta")]
)
def test_torchs_own_other_tensors_are_inert(saved, made):
    path = saved({"s": made()})
    with pytest.raises(UnknownTypeError, match="torch."):
        aoserial.load(path)
    (inert,) = aoserial.load(path, strict=False).values()
    assert inert.record.type.startswith("torch.")
    assert list(inert.shape) == [3]


def test_our_tensors_come_back_as_themselves(tmp_path):
    weight = Int8Tensor.from_float(torch.randn(8, 16))
    held = {"w": weight, "tied": weight, "p": torch.nn.Parameter(weight, requires_grad=False)}
    aoserial.save({"model": held, "epoch": 1}, tmp_path / "w.pt")
    state = aoserial.load(tmp_path / "w.pt")
    assert type(state["model.w"]) is Int8Tensor
    assert state["model.w"] is state["model.tied"]
    assert isinstance(state["model.p"], torch.nn.Parameter)
    assert same_bytes(state["model.w"].qdata, weight.qdata)
    with aoserial.open(tmp_path / "w.pt") as checkpoint:
        assert checkpoint.record("model.w").type == "aoserial.Int8Tensor"
        assert checkpoint.tree["epoch"] == 1
    loaded = torch.load(tmp_path / "w.pt", weights_only=True)
    assert same_bytes(loaded["model"]["w"].qdata, weight.qdata)


def test_a_whole_module_gives_the_names_of_its_state_dict(saved):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    model.register_buffer("passing", torch.ones(1), persistent=False)
    expected = model.state_dict()
    path = saved({"model": model})
    state = aoserial.load(path)
    assert list(state) == [f"model.{name}" for name in expected]
    for name, tensor in expected.items():
        assert same_bytes(state[f"model.{name}"].detach(), tensor)
    with aoserial.open(path) as checkpoint:
        assert checkpoint.tree["model"].path.endswith("Sequential")
        assert not checkpoint.report.notes


def test_tensors_inside_unknown_objects_are_told_of(saved):
    held = argparse.Namespace(mean=torch.ones(2), std=torch.ones(2))
    with aoserial.open(saved({"args": held, "w": torch.ones(1)})) as checkpoint:
        assert list(checkpoint) == ["w"]
        (note,) = checkpoint.report.notes
    assert note == "args is an object of argparse.Namespace: 2 tensors in it are in the tree alone"


def test_two_tensors_of_one_dotted_name_are_refused(saved):
    path = saved({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}})
    with pytest.raises(CollisionError, match="dotted name of two tensors"):
        aoserial.load(path)


def test_inspect_counts_what_a_pickle_holds(saved, tmp_path):
    aoserial.save(
        {"w": Int8Tensor.from_float(torch.randn(8, 8)), "b": torch.ones(3)}, tmp_path / "w.pt"
    )
    summary = aoserial.inspect(tmp_path / "w.pt")
    assert summary.format == "torch.save (zip)"
    assert summary.layout == "pickle"
    assert {row.type: row.count for row in summary.types} == {
        "aoserial.Int8Tensor": 1,
        "torch.Tensor": 1,
    }
    assert aoserial.plan(tmp_path / "w.pt").plain_bytes == 12
    assert not aoserial.plan(tmp_path / "w.pt").pending


def test_verify_checks_the_archive_and_says_what_it_cannot(saved):
    path = saved({"w": torch.ones(1000)})
    verdict = aoserial.verify(path, deep=True)
    assert verdict
    assert any("no digest" in what for what in verdict.unverified)
    with zipfile.ZipFile(path) as archive:
        (entry,) = (info for info in archive.infolist() if info.filename.endswith("data/0"))
    raw = bytearray(path.read_bytes())
    raw[entry.header_offset + 200] ^= 1
    path.write_bytes(raw)
    assert aoserial.verify(path)
    (fault,) = aoserial.verify(path, deep=True).faults
    assert isinstance(fault, IntegrityError)
    with pytest.raises(IntegrityError, match="CRC-32"):
        aoserial.load(path, verify="checksums")


@pytest.mark.parametrize("value", [object(), numpy.array(["text"]), Config(1.0, torch.ones(1))])
def test_what_an_archive_cannot_hold_is_refused_before_a_byte_is_written(value, tmp_path):
    with pytest.raises((UnsupportedTensorError, Faults)):
        aoserial.save({"w": torch.ones(1), "x": value}, tmp_path / "x.pt")
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_migrated_comes_out_as_a_safetensors_file(saved, tmp_path):
    path = saved({"a.w": torch.ones(3)})
    aoserial.migrate(path, tmp_path / "w.safetensors")
    assert same_bytes(aoserial.load(tmp_path / "w.safetensors")["a.w"], torch.ones(3))
