"""Checkpoints of several files, whoever wrote them, are one checkpoint to every reader."""

from __future__ import annotations

import json
import os
import shutil

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from support.files import edit_envelope

import aoserial
from aoserial.errors import (
    AmbiguousFolderError,
    AoserialError,
    CollisionError,
    Faults,
    IntegrityError,
    MissingPartError,
    MissingShardError,
    OptionError,
    PathError,
    ShardIndexError,
    UnknownNameError,
    UnsupportedOperationError,
)
from aoserial.storage.shards import split
from aoserial.torchao import flatten_tensor_state_dict

INDEX = "model.safetensors.index.json"


def model(count=6):
    """Quantized and plain tensors, ties, and a plain name that looks like a part's."""
    embedding = torch.randn(4, 4)
    state = {"embed": embedding, "0.weight": torch.randn(3), "0._weight_qdata": torch.ones(3)}
    for n in range(1, count):
        state[f"{n}.weight"] = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
        state[f"{n}.bias"] = torch.randn(16)
    state["head"] = embedding
    state["tied"] = state["1.weight"]
    return state


def parts_of(tensor):
    if isinstance(tensor, aoserial.VersionedTensor):
        return [type(tensor), *(getattr(tensor, name) for name in tensor.part_names())]
    return [tensor]


def same(found, expected):
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        for one, other in zip(parts_of(found[name]), parts_of(tensor), strict=True):
            assert one == other if isinstance(one, type) else torch.equal(one, other)


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "model"
    state = model()
    aoserial.save(state, folder, max_shard_size=300)
    return folder


def edit_index(folder, change, name=INDEX):
    index = json.loads((folder / name).read_text())
    change(index)
    (folder / name).write_text(json.dumps(index))


def faults_of(error):
    return list(error.exceptions) if isinstance(error, Faults) else [error]


# -- what we write ------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1, 200, 300, 1000, "5GB"])
def test_a_set_comes_back_as_it_was_saved(tmp_path, size):
    state = model()
    aoserial.save(state, tmp_path / "m", max_shard_size=size)
    paths = [tmp_path / "m"]
    if size != "5GB":
        paths.append(tmp_path / "m" / INDEX)
    for path in paths:
        found = aoserial.load(path)
        same(found, state)
        assert found["head"] is found["embed"]
        assert found["tied"] is found["1.weight"]
        verdict = aoserial.verify(path, deep=True)
        assert verdict
        assert verdict.unverified == ()


def test_every_reader_takes_a_folder_and_an_index(folder):
    for path in (folder, folder / INDEX, str(folder) + "/"):
        with aoserial.open(path) as checkpoint:
            assert isinstance(checkpoint["1.weight"], aoserial.Int8Tensor)
            assert checkpoint.record("tied").type == "aoserial.Int8Tensor"
            same(checkpoint.tree, aoserial.load(path))
        summary = aoserial.inspect(path)
        assert summary.count == 13
        assert "shards" in summary.format
        assert summary.file_bytes == sum(file.stat().st_size for file in folder.iterdir())
        assert aoserial.plan(path).pending == ()
        assert aoserial.load(path, names=["tied"]).keys() == {"tied"}


def test_each_shard_is_a_checkpoint_of_its_own_records(folder):
    names = set()
    for path in folder.glob("*.safetensors"):
        found = aoserial.load(path)
        assert names.isdisjoint(found)
        names |= found.keys()
        assert aoserial.verify(path, deep=True)
    assert names == model().keys()


def test_the_index_is_as_others_read_it(folder):
    index = json.loads((folder / INDEX).read_text())
    sizes = 0
    for path in folder.glob("*.safetensors"):
        with safe_open(path, "pt") as file:
            for key in file.keys():
                assert index["weight_map"].pop(key) == path.name
                sizes += file.get_tensor(key).nbytes
    assert index["weight_map"] == {}
    assert index["metadata"]["total_size"] == sizes


def test_plain_tensors_are_divided_as_huggingface_hub_divides_them(tmp_path):
    hub = pytest.importorskip(
        "huggingface_hub", reason="huggingface_hub is not installed: sets are not compared with it"
    )
    state = {f"{n}.weight": torch.randn(n % 7 + 1) for n in range(40)}
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    hub.save_torch_state_dict(state, theirs, max_shard_size="0.1KB", metadata={"a": "b"})
    aoserial.save(state, ours, max_shard_size="0.1KB", metadata={"a": "b"})
    assert sorted(os.listdir(ours)) == sorted(os.listdir(theirs))
    found = json.loads((ours / INDEX).read_text())
    del found["metadata"]["aoserial"]
    assert found == json.loads((theirs / INDEX).read_text())
    for path in theirs.glob("*.safetensors"):
        assert load_file(path).keys() == load_file(ours / path.name).keys()
    same(aoserial.load(theirs), state)
    with aoserial.open(theirs) as checkpoint:
        assert checkpoint.metadata == {"format": "pt", "a": "b"}


def test_equal_input_makes_equal_sets(tmp_path):
    torch.manual_seed(0)
    state = model()
    for name in ("a", "b"):
        aoserial.save(state, tmp_path / name, max_shard_size=300)
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


@pytest.mark.parametrize(
    ("name", "size", "written"),
    [
        ("x.safetensors", None, ["x.safetensors"]),
        ("x.safetensors", "1GB", ["x.safetensors"]),
        ("x.safetensors", 8, ["x-00001-of-00002.safetensors", "x-00002-of-00002.safetensors",
                              "x.safetensors.index.json"]),
        ("x.safetensors.index.json", 8, ["x-00001-of-00002.safetensors",
                                         "x-00002-of-00002.safetensors",
                                         "x.safetensors.index.json"]),
        ("llama-3.1", 99, ["llama-3.1/model.safetensors"]),
        ("a/b/", None, ["a/b/model.safetensors"]),
        ("plain", None, ["plain"]),
    ],
)  # fmt: skip
def test_what_a_path_means(tmp_path, name, size, written):
    state = {"a": torch.ones(2), "b": torch.zeros(2)}
    aoserial.save(state, f"{tmp_path}/{name}", max_shard_size=size)
    files = [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()]
    assert sorted(files) == written
    same(aoserial.load(f"{tmp_path}/{name}"), state) if (tmp_path / name).exists() else None


def test_a_file_where_a_folder_is_needed_is_refused(tmp_path):
    (tmp_path / "x").write_bytes(b"mine")
    with pytest.raises(PathError):
        aoserial.save({"a": torch.ones(1)}, tmp_path / "x", max_shard_size="1GB")
    assert (tmp_path / "x").read_bytes() == b"mine"


def test_saving_one_file_over_a_set_of_that_name_replaces_the_set(folder):
    state = {"a": torch.ones(2)}
    aoserial.save(state, folder / "model.safetensors")
    assert os.listdir(folder) == ["model.safetensors"]
    same(aoserial.load(folder), state)


def test_a_set_is_saved_over_the_files_that_its_tensors_lie_in(folder):
    state = aoserial.load(folder)
    expected = aoserial.load(folder)
    for size in (500, 200, "1GB", 300):
        aoserial.save(state, folder, max_shard_size=size)
        same(aoserial.load(folder), expected)
        state = aoserial.load(folder)


def test_an_open_set_keeps_its_trail_and_metadata_when_saved(tmp_path):
    state = model()
    aoserial.save(state, tmp_path / "a", max_shard_size=300, metadata={"who": "me"})
    for path in (tmp_path / "a").glob("*.safetensors"):
        edit_envelope(path, lambda envelope: envelope.update(later={"x": 1}, trail=[{"step": "s"}]))
    edit_index(tmp_path / "a", lambda index: index["metadata"].pop("aoserial"))
    with aoserial.open(tmp_path / "a") as checkpoint:
        aoserial.save(checkpoint, tmp_path / "b", max_shard_size=500)
    with aoserial.open(tmp_path / "b") as checkpoint:
        assert checkpoint.metadata == {"format": "pt", "who": "me"}
        assert checkpoint.trail == [{"step": "s"}]
        assert checkpoint.catalog.extra == {"later": {"x": 1}}
        same(dict(checkpoint), state)


def test_a_set_goes_into_a_module(tmp_path):
    module = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 4))
    state = {
        name: aoserial.Int8Tensor.from_float(tensor) if tensor.dim() == 2 else tensor.detach()
        for name, tensor in module.state_dict().items()
    }
    aoserial.save(state, tmp_path / "m", max_shard_size=100)
    with torch.device("meta"):
        empty = torch.nn.Sequential(torch.nn.Linear(16, 8), torch.nn.Linear(8, 4))
    aoserial.load_into(empty, tmp_path / "m")
    same(dict(empty.state_dict()), state)


def test_a_set_migrates_and_converts_into_a_file_and_a_folder(folder, tmp_path):
    from aoserial.checkpoint.converting import convert

    expected = aoserial.load(folder)
    aoserial.migrate(folder, tmp_path / "one.safetensors")
    same(aoserial.load(tmp_path / "one.safetensors"), expected)
    convert(folder, tmp_path / "new", to="safetensors")
    (tmp_path / "other").mkdir()
    aoserial.migrate(folder, tmp_path / "other")
    same(aoserial.load(tmp_path / "other"), expected)
    with pytest.raises(PathError, match="source itself"):
        convert(folder / INDEX, folder)


# -- what others write --------------------------------------------------------------------------


def scatter(folder, tensors, metadata, groups, *, in_index=False):
    """Tensors as shards with the same metadata each, or with it in the index alone."""
    folder.mkdir()
    weight_map = {}
    for number, keys in enumerate(groups, 1):
        name = f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        held = {"format": "pt"} if in_index else dict(metadata)
        save_file({key: tensors[key].clone() for key in keys}, folder / name, metadata=held)
        weight_map.update(dict.fromkeys(keys, name))
    total = sum(tensor.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    if in_index:
        index["metadata"] |= metadata
    (folder / INDEX).write_text(json.dumps(index))


def torchao_state():
    return {
        "m.weight": aoserial.Int4Tensor.from_float(torch.randn(16, 64), group_size=32),
        "m.other": aoserial.Float8Tensor.from_float(torch.randn(16, 64)),
        "m.bias": torch.randn(4),
    }


@pytest.mark.parametrize("in_index", [False, True], ids=["in every shard", "in the index"])
@pytest.mark.parametrize("flatten", [aoserial.flatten, flatten_tensor_state_dict])
@pytest.mark.parametrize("backwards", [False, True])
def test_parts_of_a_record_lie_in_different_shards_in_any_order(
    tmp_path, flatten, in_index, backwards
):
    state = torchao_state()
    tensors, metadata = flatten(state)
    keys = sorted(tensors, reverse=backwards)
    scatter(tmp_path / "m", tensors, metadata, [[key] for key in keys], in_index=in_index)
    found = aoserial.load(tmp_path / "m")
    assert found.keys() == state.keys()
    for name, tensor in state.items():
        expected = tensor.dequantize() if isinstance(tensor, aoserial.VersionedTensor) else tensor
        got = found[name]
        got = got.dequantize() if isinstance(got, aoserial.VersionedTensor) else got
        assert torch.equal(got, expected)
    with aoserial.open(tmp_path / "m") as checkpoint:
        assert checkpoint.metadata.keys() <= {"format"}


def test_shards_that_describe_each_their_own_by_torchao_are_one(tmp_path):
    state = torchao_state()
    aoserial.save(state, tmp_path / "m", max_shard_size=100, layout="torchao")
    found = aoserial.load(tmp_path / "m")
    assert found.keys() == state.keys()
    assert aoserial.inspect(tmp_path / "m").layout == "torchao"


def test_a_name_is_tied_to_one_in_another_shard(tmp_path):
    state = {"a": torch.randn(4), "b": torch.randn(4)}
    state["c"] = state["a"]
    tensors, metadata = aoserial.flatten(state)
    tensors = {"a": state["a"], "b": state["b"]}
    scatter(tmp_path / "m", tensors, metadata, [["b"], ["a"]])
    found = aoserial.load(tmp_path / "m")
    assert found["c"] is found["a"]


def test_a_record_that_lacks_a_part_in_all_shards_is_told_by_name(tmp_path):
    state = torchao_state()
    tensors, metadata = aoserial.flatten(state)
    del tensors["m._weight_scale"]
    scatter(tmp_path / "m", tensors, metadata, [[key] for key in tensors])
    with pytest.raises(MissingPartError) as caught:
        aoserial.load(tmp_path / "m")
    assert caught.value.location.name == "m.weight"
    assert caught.value.location.field == "scale"


@pytest.fixture
def pickled(tmp_path):
    """A set of pickles, as transformers wrote before safetensors."""
    folder = tmp_path / "bin"
    folder.mkdir()
    state = {f"{n}.weight": torch.randn(4) for n in range(6)}
    state["q.weight"] = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    state["0.tied"] = state["0.weight"]
    names = {}
    for number, group in enumerate((["0.weight", "0.tied", "1.weight"], ["2.weight", "3.weight"],
                                    ["4.weight", "5.weight", "q.weight"]), 1):  # fmt: skip
        name = f"pytorch_model-{number:05d}-of-00003.bin"
        torch.save({key: state[key] for key in group}, folder / name)
        names |= dict.fromkeys(group, name)
    index = {"metadata": {"total_size": 1}, "weight_map": names}
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    return folder, state


def test_a_set_of_pickles_is_one_checkpoint(pickled, tmp_path):
    folder, state = pickled
    found = aoserial.load(folder)
    same(found, state)
    assert found["0.tied"] is found["0.weight"]
    with aoserial.open(folder) as checkpoint:
        same(checkpoint.tree, state)
        assert any("total" in note or "bytes" in note for note in checkpoint.report.notes)
    assert aoserial.verify(folder, deep=True)
    aoserial.migrate(folder, tmp_path / "new.safetensors")
    same(aoserial.load(tmp_path / "new.safetensors"), state)
    aoserial.migrate(folder, tmp_path / "new.pt")
    same(aoserial.load(tmp_path / "new.pt"), state)


def test_a_set_of_pickles_is_not_replaced_in_place(pickled):
    folder, _ = pickled
    before = sorted(os.listdir(folder))
    aoserial.migrate(folder, in_place=True)  # nothing to do, so nothing is done
    assert sorted(os.listdir(folder)) == before


def test_a_pickle_among_safetensors_files_is_refused(folder):
    name = min(os.listdir(folder))
    torch.save({"embed": torch.ones(1)}, folder / name)
    edit_index(folder, lambda index: index["metadata"].pop("aoserial"))
    with pytest.raises(ShardIndexError, match="one format"):
        aoserial.load(folder)


# -- what is wrong with a set -------------------------------------------------------------------


def test_all_that_is_wrong_with_a_set_comes_in_one_error(folder):
    names = sorted(path.name for path in folder.glob("*.safetensors"))
    os.remove(folder / names[0])
    (folder / names[1]).write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    shutil.copy(folder / names[3], folder / names[4])

    def change(index):
        index["weight_map"]["stranger"] = names[2]
        index["metadata"].pop("aoserial")

    edit_index(folder, change)
    for reader in (aoserial.load, aoserial.inspect, aoserial.open, aoserial.plan):
        with pytest.raises(Faults) as caught:
            reader(folder)
        faults = faults_of(caught.value)
        by_shard = {fault.location.shard for fault in faults}
        assert {names[0], names[1], names[2]} <= by_shard
        kinds = {type(fault) for fault in faults}
        assert {MissingShardError, CollisionError, ShardIndexError} <= kinds
        text = str(caught.value)
        assert "git-LFS" in text
        assert "stranger" in text
        assert all(str(folder) in str(fault.location) for fault in faults)
    verdict = aoserial.verify(folder)
    assert len(verdict.faults) == len(faults)


def test_a_missing_shard_alone_is_a_file_not_found_error_and_a_finding(folder):
    name = max(path.name for path in folder.glob("*.safetensors"))
    os.remove(folder / name)
    with pytest.raises(FileNotFoundError) as caught:
        aoserial.load(folder)
    assert isinstance(caught.value, MissingShardError)
    assert caught.value.location.shard == name
    (fault,) = aoserial.verify(folder).faults
    assert isinstance(fault, MissingShardError)


def test_a_key_that_the_index_does_not_know_is_refused(folder):
    edit_index(folder, lambda index: index["weight_map"].pop("0.weight"))
    with pytest.raises(ShardIndexError, match="does not know") as caught:
        aoserial.load(folder)
    assert caught.value.location.name == "0.weight"


def test_a_key_that_lies_in_another_shard_than_the_index_says_is_refused(folder):
    names = sorted(path.name for path in folder.glob("*.safetensors"))

    def change(index):
        index["weight_map"]["0.weight"] = names[-1]

    edit_index(folder, change)
    with pytest.raises(ShardIndexError, match="the index says"):
        aoserial.load(folder)


def test_a_shard_of_another_generation_is_noticed_without_reading_it(tmp_path):
    for name in ("old", "new"):
        state = {f"{n}": torch.randn(8) for n in range(4)}
        aoserial.save(state, tmp_path / name, max_shard_size=32)
    name = "model-00002-of-00004.safetensors"
    shutil.copy(tmp_path / "old" / name, tmp_path / "new" / name)
    with pytest.raises(IntegrityError, match="another generation") as caught:
        aoserial.load(tmp_path / "new")
    assert caught.value.location.shard == name


def test_a_flipped_bit_in_a_shard_is_found_by_the_checksums_with_shard_and_name(folder):
    path = sorted(folder.glob("*.safetensors"))[1]
    raw = bytearray(path.read_bytes())
    raw[-1] ^= 1
    path.write_bytes(raw)
    aoserial.load(folder)
    with pytest.raises(Faults) as caught:
        aoserial.load(folder, verify="checksums")
    faults = faults_of(caught.value)
    assert {fault.location.shard for fault in faults} == {path.name}
    assert any("SHA-256" in str(fault) for fault in faults)
    assert any("CRC-32" in str(fault) and fault.location.name for fault in faults)
    assert not aoserial.verify(folder, deep=True)


def test_a_set_without_digests_says_what_is_not_verified(folder):
    edit_index(folder, lambda index: index["metadata"].pop("aoserial"))
    (lacking,) = aoserial.verify(folder, deep=True).unverified
    assert "belong together" in lacking


def test_a_wrong_total_is_noted_and_no_reason_to_refuse(folder):
    edit_index(folder, lambda index: index["metadata"].update(total_size=1))
    with aoserial.open(folder) as checkpoint:
        assert any("1 bytes" in note for note in checkpoint.report.notes)


def test_a_file_beside_the_set_that_the_index_does_not_name_is_not_read(folder):
    expected = aoserial.load(folder)
    save_file({"embed": torch.ones(1)}, folder / "stray.safetensors")
    same(aoserial.load(folder), expected)


def test_a_folder_that_leaves_it_open_is_refused(tmp_path):
    for name in ("a", "b"):
        aoserial.save({"x": torch.ones(1)}, tmp_path / f"{name}.safetensors")
    with pytest.raises(AmbiguousFolderError, match="'a.safetensors', 'b.safetensors'"):
        aoserial.load(tmp_path)


# -- tensors as they come -----------------------------------------------------------------------


@pytest.mark.parametrize("flatten", [aoserial.flatten, flatten_tensor_state_dict])
@pytest.mark.parametrize("at_once", [1, 2, 99])
def test_a_loader_hands_out_what_becomes_whole(flatten, at_once):
    state = torchao_state()
    tensors, metadata = flatten(state)
    keys = sorted(tensors, key=lambda key: key[::-1])
    loader, found = aoserial.Loader(), {}
    for group in split(dict.fromkeys(keys, 1), at_once):
        ready = loader.feed({key: tensors[key] for key in group}, metadata)
        assert found.keys().isdisjoint(ready)
        found |= ready
    loader.finish()
    assert found.keys() == state.keys()
    assert isinstance(found["m.weight"], aoserial.Int4Tensor)
    assert torch.equal(found["m.weight"].dequantize(), state["m.weight"].dequantize())


def test_a_loader_takes_the_shards_of_a_set_in_any_order(folder):
    loader, found = aoserial.Loader(), {}
    for path in sorted(folder.glob("*.safetensors"), reverse=True):
        with safe_open(path, "pt") as file:
            found |= loader.feed(
                {key: file.get_tensor(key) for key in file.keys()}, file.metadata()
            )
    loader.finish()
    same(found, aoserial.load(folder))
    assert found["tied"] is found["1.weight"]


def test_a_loader_lists_all_that_never_became_whole():
    state = torchao_state()
    state["tied"] = state["m.bias"]
    tensors, metadata = aoserial.flatten(state)
    del tensors["m._weight_scale"], tensors["m._other_qdata"], tensors["m.bias"]
    loader = aoserial.Loader()
    assert loader.feed(tensors, metadata) == {}
    with pytest.raises(Faults) as caught:
        loader.finish()
    faults = {fault.location.name: str(fault) for fault in faults_of(caught.value)}
    assert faults.keys() == {"m.weight", "m.other", "tied"}
    assert "m._weight_scale" in faults["m.weight"]
    with pytest.raises(UnsupportedOperationError):
        loader.feed({}, {})


def test_a_loader_refuses_what_came_before_and_what_came_too_early():
    tensors, metadata = aoserial.flatten(torchao_state())
    loader = aoserial.Loader()
    loader.feed(dict(list(tensors.items())[:1]), metadata)
    with pytest.raises(CollisionError, match="came before"):
        loader.feed(tensors, metadata)
    loader = aoserial.Loader()
    early = {"m._weight_qdata": tensors["m._weight_qdata"]}
    assert loader.feed(early).keys() == early.keys()
    with pytest.raises(CollisionError, match="feed the metadata first"):
        loader.feed({}, metadata)


def test_a_loader_lists_what_nothing_describes():
    tensors, metadata = flatten_tensor_state_dict(torchao_state())
    loader = aoserial.Loader()
    loader.feed(tensors | {"stranger": torch.ones(1)}, metadata)
    with pytest.raises(AoserialError, match="stranger"):
        loader.finish()
    tensors, metadata = aoserial.flatten(torchao_state())
    loader = aoserial.Loader()
    loader.feed(tensors | {"m._weight_zero_point": torch.ones(1)}, metadata)
    with pytest.raises(AoserialError, match="looks like a part"):
        loader.finish()


def test_a_loader_holds_only_what_is_not_whole():
    tensors, metadata = aoserial.flatten(model(40))
    loader = aoserial.Loader()
    for key in sorted(tensors):
        loader.feed({key: tensors[key]}, metadata)
        assert len(loader._held) <= 1
    loader.finish()


# -- other names --------------------------------------------------------------------------------


def test_names_are_mapped_exactly_or_by_a_function(folder):
    state = aoserial.load(folder)
    found = aoserial.load(folder, rename={"embed": "tok.embed", "head": "embed"})
    assert found["tok.embed"] is found["embed"]
    assert found.keys() == state.keys() - {"head"} | {"tok.embed"}
    same(aoserial.load(folder, rename=lambda name: f"model.{name}"),
         {f"model.{name}": tensor for name, tensor in state.items()})  # fmt: skip
    assert aoserial.load(folder, names=["head"], rename={"head": "x"}).keys() == {"x"}


def test_renaming_that_does_not_work_out_lists_all_reasons(folder):
    with pytest.raises(Faults) as caught:
        aoserial.load(folder, rename={"embed": "head", "0.weight": "1.bias", "nobody": "x"})
    kinds = [type(fault) for fault in caught.value.exceptions]
    assert sorted(kind.__name__ for kind in kinds) == [
        *("CollisionError", "CollisionError", "UnknownNameError")
    ]
    with pytest.raises(CollisionError, match="name of 15 tensors"):
        aoserial.load(folder, rename=lambda _: "same")
    with pytest.raises(AoserialError):
        aoserial.load(folder, rename=lambda _: None)
    with pytest.raises(OptionError):
        aoserial.load(folder, rename="prefix.")
    with pytest.raises(UnknownNameError):
        aoserial.load(folder, rename={"nobody": "x"})
