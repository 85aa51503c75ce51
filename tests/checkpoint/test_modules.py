"""`load_into`: a checkpoint becomes a model's parameters."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import aoserial
from aoserial.errors import FieldError, OptionError, UnknownNameError


class Tied(nn.Module):
    """An embedding whose weight is also the output projection, and a buffer nobody saves."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(32, 16)
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.embed.weight
        self.norm = nn.LayerNorm(16)

    def forward(self, ids):
        return self.head(self.norm(self.embed(ids)))


def meta_model(make):
    with torch.device("meta"):
        return make()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


def save_linear(path, **more):
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    aoserial.save({"weight": weight, "bias": torch.ones(8)} | more, path)
    return weight


def test_a_model_on_the_meta_device_gets_its_parameters_and_runs(path):
    weight = save_linear(path)
    model = meta_model(lambda: nn.Linear(16, 8))
    aoserial.load_into(model, path)
    assert isinstance(model.weight, aoserial.Int8Tensor)
    assert isinstance(model.weight, nn.Parameter)
    assert not model.weight.requires_grad
    assert model.bias.requires_grad
    x = torch.randn(3, 16)
    assert torch.allclose(model(x), x @ weight.dequantize().t() + 1, atol=1e-5)


def test_parameters_that_are_one_in_the_model_stay_one_when_both_names_are_in_the_file(path):
    source = Tied()
    aoserial.save(source.state_dict(), path)
    model = meta_model(Tied)
    aoserial.load_into(model, path)
    assert model.head.weight is model.embed.weight
    ids = torch.tensor([1, 2])
    assert torch.equal(model(ids), source(ids))


def test_parameters_that_are_one_in_the_model_need_only_one_name_in_the_file(path):
    state = Tied().state_dict()
    del state["head.weight"]
    aoserial.save(state, path)
    model = meta_model(Tied)
    aoserial.load_into(model, path)
    assert model.head.weight is model.embed.weight


def test_names_tied_in_the_file_become_one_parameter(path):
    weight = aoserial.Int8Tensor.from_float(torch.randn(16, 16))
    aoserial.save({"0.weight": weight, "1.weight": weight}, path)
    model = meta_model(lambda: nn.Sequential(*(nn.Linear(16, 16, bias=False) for _ in range(2))))
    aoserial.load_into(model, path)
    assert model[0].weight is model[1].weight


def test_a_name_or_shape_that_does_not_fit_is_refused_and_the_model_left_as_it_was(path):
    save_linear(path, extra=torch.ones(1))
    model = nn.Linear(16, 4)
    before = model.weight.detach().clone()
    with pytest.raises(aoserial.Faults) as caught:
        aoserial.load_into(model, path)
    kinds = {(fault.location.name, type(fault)) for fault in caught.value.exceptions}
    assert kinds == {
        ("extra", UnknownNameError),
        ("weight", FieldError),
        ("bias", FieldError),
    }
    assert torch.equal(model.weight, before)


def test_a_missing_parameter_is_an_error_when_strict_and_kept_otherwise(path):
    aoserial.save({"bias": torch.ones(8)}, path)
    model = nn.Linear(16, 8)
    with pytest.raises(UnknownNameError, match="weight: the model has it"):
        aoserial.load_into(model, path)
    aoserial.load_into(model, path, strict=False)
    assert torch.equal(model.bias, torch.ones(8))


def test_of_a_checkpoint_that_holds_more_what_the_model_has_is_taken_and_all_of_it_needed(path):
    weight = save_linear(path, pooler=torch.ones(1))
    model = meta_model(lambda: nn.Linear(16, 8))
    aoserial.load_into(model, path, names=model.state_dict())
    assert torch.equal(model.weight.qdata, weight.qdata)
    wider = meta_model(lambda: nn.Sequential(nn.Linear(16, 8), nn.Linear(16, 8)))
    with pytest.raises(aoserial.Faults, match="4 names are not in the checkpoint"):
        aoserial.load_into(wider, path, names=wider.state_dict())


def test_a_checkpoint_of_other_names_is_taken_under_those_of_the_model(path):
    weight = save_linear(path)
    model = meta_model(lambda: nn.Sequential(nn.Linear(16, 8)))
    aoserial.load_into(model, path, rename=lambda name: f"0.{name}")
    assert torch.equal(model[0].weight.qdata, weight.qdata)


def test_what_a_file_cannot_tell_is_answered(path):
    save_linear(path)
    with pytest.raises(OptionError, match="nothing_of_the_kind"):
        aoserial.load_into(nn.Linear(16, 8), path, assume={"nothing_of_the_kind": "1"})


def test_integers_where_the_model_has_real_numbers_are_refused(path):
    aoserial.save({"weight": torch.ones(8, 16), "bias": torch.ones(8, dtype=torch.int64)}, path)
    told = "bias: dtype is torch.int64 in the checkpoint, torch.float32 in the model"
    with pytest.raises(FieldError, match=told):
        aoserial.load_into(nn.Linear(16, 8), path)


def test_another_precision_is_the_checkpoints_to_choose(path):
    half = {"weight": torch.ones(8, 16).bfloat16(), "bias": torch.ones(8).bfloat16()}
    aoserial.save(half, path)
    model = nn.Linear(16, 8)
    aoserial.load_into(model, path)
    assert model.weight.dtype is torch.bfloat16


def test_parameters_left_on_the_meta_device_are_told_of(path):
    aoserial.save({"bias": torch.ones(8)}, path)
    with pytest.warns(aoserial.AoserialWarning, match="still on the meta device.*: weight; init"):
        aoserial.load_into(meta_model(lambda: nn.Linear(16, 8)), path, strict=False)


def test_buffers_left_on_the_meta_device_are_told_of(path):
    class WithTable(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))
            self.register_buffer("table", torch.ones(2), persistent=False)

    aoserial.save({"weight": torch.ones(2)}, path)
    with pytest.warns(aoserial.AoserialWarning, match="still on the meta device.*: table"):
        aoserial.load_into(meta_model(WithTable), path)


def test_integer_parameters_need_no_gradient(path):
    class Codes(nn.Module):
        def __init__(self):
            super().__init__()
            self.codes = nn.Parameter(torch.ones(2, dtype=torch.int8), requires_grad=False)

    aoserial.save({"codes": torch.zeros(2, dtype=torch.int8)}, path)
    model = Codes()
    aoserial.load_into(model, path)
    assert model.codes.dtype is torch.int8
