"""`save`: what it refuses, and that it refuses before a byte is written."""

from __future__ import annotations

import os
import stat

import pytest
import torch

import aoserial
from aoserial.errors import (
    AoserialError,
    CollisionError,
    OptionError,
    SaveError,
    TensorNameError,
    UnregisteredClassError,
    UnsupportedTensorError,
)


class Unregistered(torch.Tensor):
    pass


class Wrapped(aoserial.VersionedTensor):
    """Derived from the base, never registered."""

    qdata: torch.Tensor


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(b"what was there before")
    return path


def refused(state, path, error, match, **options):
    with pytest.raises(error, match=match) as caught:
        aoserial.save(state, path, **options)
    assert isinstance(caught.value, AoserialError)
    assert path.read_bytes() == b"what was there before"
    assert os.listdir(path.parent) == [path.name]


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (1, UnsupportedTensorError, "x: is a int, not a tensor"),
        ({"nested": torch.ones(1)}, UnsupportedTensorError, "x: is a dict, not a tensor"),
        (torch.ones(1, dtype=torch.complex128), UnsupportedTensorError, "complex128 has no name"),
        (torch.ones(2, 2).to_sparse(), UnsupportedTensorError, "layout is torch.sparse_coo"),
        (torch.ones(2, device="meta"), UnsupportedTensorError, "meta device"),
        (torch.ones(2, dtype=torch.complex64).conj(), UnsupportedTensorError, "resolve_conj"),
        (
            torch.ones(2).as_subclass(Unregistered),
            UnregisteredClassError,
            "Unregistered, which has no",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_no_file_can_hold_is_refused_by_name_and_nothing_is_written(path, value, error, match):
    refused({"ok": torch.ones(1), "x": value}, path, error, match)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions.*deprecated")
def test_a_quantized_tensor_of_torchs_own_is_refused(path):
    quantized = torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)
    refused({"x": quantized}, path, UnsupportedTensorError, "x: ")


def test_all_refused_tensors_come_in_one_error(path):
    refused(
        {"a": 1, "b": 2, "c": torch.ones(1)}, path, aoserial.Faults, "2 tensors cannot be saved"
    )


@pytest.mark.parametrize(
    "name", ["", "__metadata__", "a\nb", "a\0", "x" * 1100, "\ud800"], ids=repr
)
def test_a_name_no_file_can_hold_is_refused(path, name):
    with pytest.raises(TensorNameError):
        aoserial.save({name: torch.ones(1)}, path)
    assert path.read_bytes() == b"what was there before"


def test_names_that_are_no_strings_and_states_that_are_no_mappings_are_refused(path):
    refused({1: torch.ones(1)}, path, TensorNameError, "1 names a tensor, and is no string")
    refused([torch.ones(1)], path, UnsupportedTensorError, "a list is no mapping")


@pytest.mark.parametrize(
    "make", [torch.ones, lambda n: aoserial.Int8Tensor.from_float(torch.ones(n, n))]
)
def test_a_tied_name_is_held_to_the_same_rules(path, make):
    tensor = make(2)
    for name in ("__metadata__", "a\nb", ""):
        with pytest.raises(TensorNameError):
            aoserial.save({"first": tensor, name: tensor}, path)
    assert path.read_bytes() == b"what was there before"


def test_names_that_look_the_same_are_refused(path):
    composed, decomposed = "é", "e\u0301"
    with pytest.raises(TensorNameError):
        aoserial.save({composed: torch.ones(1), decomposed: torch.ones(1)}, path)


@pytest.mark.parametrize(
    ("options", "name", "error"),
    [
        ({"max_shard_size": "5GB"}, "model.pt", OptionError),
        ({"max_shard_size": "5 parsecs"}, "model.safetensors", OptionError),
        ({"max_shard_size": 0}, "model.safetensors", OptionError),
        ({}, "pytorch_model.bin.index.json", OptionError),
        ({"layout": "gguf"}, "model.safetensors", OptionError),
        ({"metadata": {"a": "b"}}, "model.pt", OptionError),
        ({"metadata": {"aoserial": "x"}}, "model.safetensors", CollisionError),
        ({"metadata": {"n": 1}}, "model.safetensors", UnsupportedTensorError),
    ],
)
def test_an_option_this_version_does_not_have_is_refused(tmp_path, options, name, error):
    with pytest.raises(error):
        aoserial.save({"x": torch.ones(1)}, tmp_path / name, **options)
    assert os.listdir(tmp_path) == []


def test_an_empty_state_dict_is_a_file_with_nothing_in_it(tmp_path):
    aoserial.save({}, tmp_path / "empty.safetensors")
    assert aoserial.load(tmp_path / "empty.safetensors") == {}


def test_a_new_file_has_the_mode_the_umask_allows_and_an_old_one_keeps_its_own(tmp_path):
    path = tmp_path / "model.safetensors"
    before = os.umask(0o027)
    try:
        aoserial.save({"x": torch.ones(1)}, path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    aoserial.save({"x": torch.ones(1)}, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_a_folder_that_is_not_there_is_a_save_error_with_its_errno(tmp_path):
    with pytest.raises(SaveError) as caught:
        aoserial.save({"x": torch.ones(1)}, tmp_path / "no" / "model.safetensors")
    assert isinstance(caught.value, OSError)
    assert caught.value.errno == 2


@pytest.mark.parametrize("durability", ["rename", "fsync", "fsync+verify"])
def test_every_durability_writes_the_same_bytes(tmp_path, durability):
    aoserial.save({"x": torch.ones(1)}, tmp_path / "a", durability=durability)
    aoserial.save({"x": torch.ones(1)}, tmp_path / "b")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
