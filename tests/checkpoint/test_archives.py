"""Pickled tensors and `.pt` files: opened by plain `torch.load`, resolved as records are."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import torch
from support.tensors import same_bytes

import aoserial
from aoserial.errors import DriftError, UnknownTypeError, UnsupportedTensorError


@aoserial.register("pickled.Scaled", version=2)
class Scaled(aoserial.VersionedTensor):
    """Version 1 had the scale inverted; `note` was added later."""

    qdata: torch.Tensor
    scale: torch.Tensor
    note: str = "none"

    def dequantize(self, dtype=None):
        return (self.qdata * self.scale).to(dtype or self.dtype)


@aoserial.migration("pickled.Scaled", 1, 2)
def invert(record):
    old = record.parts["inverse"]
    new = aoserial.compute(lambda s: 1 / s, old, dtype=old.dtype, shape=old.shape)
    return record.at(2).drop("inverse").put(scale=new)


def weight():
    return Scaled(torch.arange(8.0).view(2, 4), torch.full((2, 1), 0.5), note="mine")


def through_torch(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


MAKERS = {
    "ours": weight,
    "int8": lambda: aoserial.Int8Tensor.from_float(torch.randn(8, 16)),
    "float8": lambda: aoserial.Float8Tensor.from_float(torch.randn(8, 16)),
    "nvfp4": lambda: aoserial.NVFP4Tensor.from_float(torch.randn(8, 32)),
    "mx": lambda: aoserial.MXTensor.from_float(torch.randn(8, 32), element="float6_e2m3fn"),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_tensor_comes_back_from_plain_torch_load_bit_for_bit(make):
    before = make()
    after = through_torch({"w": before})["w"]
    assert type(after) is type(before)
    assert after.__tensor_flatten__() == before.__tensor_flatten__()
    for name in before.part_names():
        assert same_bytes(getattr(after, name), getattr(before, name))


def test_a_parameter_stays_one():
    before = torch.nn.Parameter(weight(), requires_grad=False)
    after = through_torch({"w": before})["w"]
    assert isinstance(after, torch.nn.Parameter)
    assert isinstance(after, Scaled)
    assert not after.requires_grad


def test_a_pickle_names_the_type_and_its_version_and_no_class():
    text = pickle.dumps(weight(), protocol=2)
    assert b"aoserial\n_rebuild" in text
    assert b"pickled.Scaled" in text
    assert b"test_archives" not in text


def test_a_class_defined_inside_a_function_is_pickled_as_well():
    def define():
        @aoserial.register("pickled.Local", version=1)
        class Local(aoserial.VersionedTensor):
            qdata: torch.Tensor

        return Local

    after = through_torch({"w": define()(torch.ones(3))})["w"]
    assert torch.equal(after.qdata, torch.ones(3))


def described(**changes):
    """The arguments of a pickle of version 1, with some of them changed."""
    given = {
        "type_id": "pickled.Scaled",
        "version": 1,
        "proof": "",
        "dtype": "float32",
        "shape": (2, 4),
        "attributes": "{}",
        "parts": {"qdata": torch.ones(2, 4), "inverse": torch.full((2, 1), 4.0)},
    }
    return tuple((given | changes).values())


def test_an_older_version_is_migrated_and_missing_fields_take_their_defaults():
    after = aoserial._rebuild(*described())
    assert same_bytes(after.dequantize(), torch.full((2, 4), 0.25))
    assert after.note == "none"


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"type_id": "gone.Type"}, UnknownTypeError),
        ({"version": 9}, ValueError),
        ({"version": "1"}, ValueError),
        ({"version": 2}, aoserial.Faults),
        ({"attributes": "{"}, ValueError),
        ({"parts": {"qdata": "text"}}, ValueError),
        ({"parts": {}}, Exception),
        ({"shape": (2, -4)}, ValueError),
        ({"dtype": 3}, ValueError),
    ],
    ids=str,
)
def test_arguments_that_do_not_add_up_are_one_error_of_ours(changes, error):
    with pytest.raises(error) as caught:
        aoserial._rebuild(*described(**changes))
    assert isinstance(caught.value, aoserial.AoserialError)


def test_another_schema_of_the_same_version_is_drift():
    parts = {"qdata": torch.ones(2, 4), "scale": torch.ones(2, 1)}
    with pytest.raises(DriftError):
        aoserial._rebuild(*described(version=2, proof="0" * 16, parts=parts))


def test_copies_and_process_pickles_work_too():
    before = weight()
    for after in (copy.copy(before), copy.deepcopy(before), pickle.loads(pickle.dumps(before))):
        assert same_bytes(after.dequantize(), before.dequantize())


# -- .pt files -------------------------------------------------------------------------------------


def test_a_pt_path_gets_an_archive_that_plain_torch_load_opens(tmp_path):
    state = {"m.weight": weight(), "m.bias": torch.ones(4)}
    state["tied"] = state["m.weight"]
    aoserial.save(state, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert loaded.keys() == state.keys()
    assert loaded["tied"] is loaded["m.weight"]
    assert same_bytes(loaded["m.weight"].dequantize(), state["m.weight"].dequantize())
    assert os.listdir(tmp_path) == ["model.pt"]
    with zipfile.ZipFile(tmp_path / "model.pt") as archive:
        assert archive.testzip() is None
        assert all(info.CRC for info in archive.infolist() if info.file_size)


def test_what_cannot_be_saved_is_refused_before_the_archive_is_begun(tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(b"before")
    with pytest.raises(UnsupportedTensorError):
        aoserial.save({"a": weight(), "b": torch.ones(1, device="meta")}, path)
    assert path.read_bytes() == b"before"


def test_saving_one_loaded_tensor_writes_that_tensor_only(tmp_path):
    aoserial.save({"a": torch.ones(10), "b": torch.ones(100_000)}, tmp_path / "all.safetensors")
    torch.save(aoserial.load(tmp_path / "all.safetensors")["a"], tmp_path / "a.pt")
    assert (tmp_path / "a.pt").stat().st_size < 4096


@pytest.mark.parametrize(
    "imports",
    ["import torch, aoserial", "import aoserial, torch; aoserial.Int8Tensor"],
    ids=["aoserial after torch", "aoserial before torch"],
)
def test_importing_aoserial_is_all_that_torch_load_needs(tmp_path, imports):
    program = imports + "; print(torch.load({path!r}, weights_only=True)['w'].dequantize().sum())"
    aoserial.save({"w": aoserial.Int8Tensor.from_float(torch.ones(4, 4))}, tmp_path / "model.pt")
    result = subprocess.run(
        [sys.executable, "-c", program.format(path=str(tmp_path / "model.pt"))],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr
    assert "16." in result.stdout
