"""Names, indexes and folders of sharded checkpoints, and how a set is replaced by another."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors.torch import load_file, save_file

from aoserial.errors import (
    AmbiguousFolderError,
    AoserialError,
    Faults,
    LimitError,
    MissingFileError,
    MissingShardError,
    OptionError,
    PathError,
    ShardIndexError,
)
from aoserial.storage import TensorPart
from aoserial.storage.shards import (
    Index,
    ShardName,
    Target,
    find_checkpoint,
    gaps,
    parse_size,
    resolve,
    split,
    write_set,
)
from aoserial.storage.shards.index import MAX_SHARDS, parse_index, render_index

try:
    import huggingface_hub
except ImportError:  # the dev extra has it
    huggingface_hub = None

ROOT = Path(__file__).parents[2]
HUB = pytest.mark.skipif(
    huggingface_hub is None,
    reason="huggingface_hub is not installed: sets are not compared with it",
)


# -- names and sizes ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [("5GB", 5 * 10**9), ("1.5MB", 1_500_000), (" 7 kb ", 7000), ("2TB", 2 * 10**12), (12, 12)],
)
def test_a_size_is_a_number_of_bytes_or_has_a_unit_of_powers_of_ten(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["5", "5GiB", "GB", "nanGB", "infGB", "-1GB", "0KB", 0, -3, True, 2.5]
)
def test_a_size_that_is_none_is_refused(text):
    with pytest.raises(OptionError, match="max_shard_size"):
        parse_size(text)


@HUB
@given(text=st.from_regex(r"\A ?[0-9]{1,4}(\.[0-9]{1,3})? ?[KMGTkmgt][Bb] ?\Z"))
def test_sizes_mean_what_they_mean_to_huggingface_hub(text):
    from huggingface_hub.serialization._base import parse_size_to_int

    expected = parse_size_to_int(text)
    if expected:
        assert parse_size(text) == expected


@HUB
@settings(max_examples=200, deadline=None)
@given(sizes=st.lists(st.integers(1, 60), min_size=1, max_size=30), limit=st.integers(1, 80))
def test_a_state_dict_is_split_as_huggingface_hub_splits_it(sizes, limit):
    # none is empty: all of these are one to huggingface_hub, which tells tensors by their address
    state = {f"layer.{n}": torch.zeros(size, dtype=torch.uint8) for n, size in enumerate(sizes)}
    expected = huggingface_hub.split_torch_state_dict_into_shards(state, max_shard_size=limit)
    groups = split({name: len(tensor) for name, tensor in state.items()}, limit)
    names = [
        str(ShardName(stem="model", number=n, count=len(groups))) for n in range(1, len(groups) + 1)
    ]
    if len(groups) == 1:
        names = ["model.safetensors"]
    assert dict(zip(names, groups, strict=True)) == expected.filename_to_tensors


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a-00001-of-00003.bin", "a-00003-of-00003.bin"], "number 2 is not"),
        (["a-00001-of-00002.bin", "a-00002-of-00003.bin"], "2 and 3"),
        (["a-00000-of-00002.bin", "a-00001-of-00002.bin"], "numbered 0, 1"),
        (["a-00003-of-00002.bin"], "numbered 3"),
        (["a-00001-of-00001.bin", "a-00001-of-00001-0123456789ab.bin"], "numbered 1, 1"),
        (["a-000000001-of-999999999.bin"], "1 of the 999999999"),
    ],
)
def test_numbered_shards_that_are_no_whole_set_are_told(names, match):
    (fault,) = gaps(names)
    assert match in str(fault)


def test_whole_sets_and_other_names_have_no_gaps():
    names = ["b.safetensors", "a-00002-of-00002.bin", "a-00001-of-00002.bin", "a-1-of-3.bin"]
    assert list(gaps(names)) == []


# -- the index ----------------------------------------------------------------------------------


def test_an_index_comes_back_as_it_was_written():
    index = Index(weight_map={"ä.b": "x.safetensors"}, total_bytes=12, metadata={"a": "b"})
    assert parse_index(render_index(index, writer="me")) == index


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"weight_map": []}',
        '{"weight_map": {"a": 1}}',
        '{"weight_map": {"a": null}}',
        '{"weight_map": {"a": "x", "a": "y"}}',
        '{"weight_map": {"a": "x", "\\u0061": "y"}}',
        '{"weight_map": {}, "weight_map": {}}',
        '{"weight_map": {}, "metadata": []}',
        '{"weight_map": {}, "metadata": {"total_size": -1}}',
        '{"weight_map": {}, "metadata": {"total_size": 1.5}}',
        '{"weight_map": {}, "metadata": {"total_size": "1"}}',
        '{"weight_map": {}, "metadata": {"total_size": true}}',
        '{"weight_map": {}, "metadata": {"total_size": NaN}}',
        '{"weight_map": {}, "metadata": {"total_size": 1e999}}',
        '{"weight_map": {}, "metadata": {"aoserial": 3}}',
        '{"weight_map": {}, "metadata": {"aoserial": {"shards": {"x": {"size": 1}}}}}',
        '{"weight_map": {}} {}',
        '{"weight_map": {}, "n": ' + "9" * 5000 + "}",
        '{"weight_map": {"a": "x"}',
        "[" * 10_000,
    ],
)
def test_an_index_that_is_malformed_is_refused(text):
    with pytest.raises(ShardIndexError):
        parse_index(text.encode())


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_an_index_is_utf_8_without_a_mark(encoding):
    with pytest.raises(ShardIndexError):
        parse_index('{"weight_map": {"a": "x"}}'.encode(encoding))


def test_a_total_that_is_a_whole_float_is_taken():
    assert parse_index(b'{"weight_map": {}, "metadata": {"total_size": 12.0}}').total_bytes == 12


def test_an_index_beyond_its_limits_is_refused():
    shards = {f"k{n}": f"{n}.safetensors" for n in range(MAX_SHARDS + 1)}
    for text in (json.dumps({"weight_map": shards}), '{"weight_map": {}, "x": ' + "[[" * 10_000):
        with pytest.raises(LimitError):
            parse_index(text.encode())


# -- where shards may lie -----------------------------------------------------------------------


def shards_of(*names):
    return {name: ["key"] for name in names}


@pytest.mark.parametrize(
    "name",
    [
        *("", ".", "..", "/etc/passwd", "../x", "a/b", "a\\b", "\\\\host\\x", "C:x", "c:\\x"),
        *("a\0b", "a\nb", "\ud800"),
    ],
)
def test_a_name_that_is_no_file_beside_the_index_is_refused(tmp_path, name):
    (tmp_path / "good").write_bytes(b"x")
    with pytest.raises(PathError) as caught:
        resolve(str(tmp_path), shards_of("good", name))
    assert caught.value.location.shard == name


def test_two_names_that_differ_in_capitals_are_refused(tmp_path):
    with pytest.raises(PathError, match="capitals"):
        resolve(str(tmp_path), shards_of("a.bin", "A.bin"))


def test_links_out_of_the_folder_fifos_and_devices_are_refused_together(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (tmp_path / "outside").write_bytes(b"x")
    (folder / "out").symlink_to("../outside")
    (folder / "device").symlink_to("/dev/zero")
    (folder / "folder").mkdir()
    os.mkfifo(folder / "fifo")
    with pytest.raises(Faults) as caught:
        resolve(str(folder), shards_of("out", "device", "folder", "fifo", "missing"))
    assert {fault.location.shard for fault in caught.value.exceptions} == {
        *("out", "device", "folder", "fifo")
    }


def test_links_inside_the_folder_and_a_folder_that_is_a_link_work(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "file").write_bytes(b"x")
    (folder / "link").symlink_to("file")
    (tmp_path / "other").symlink_to("set")
    places, missing = resolve(str(tmp_path / "other"), shards_of("link", "file"))
    assert places == {"link": str(folder / "file"), "file": str(folder / "file")}
    assert missing == []


@pytest.mark.parametrize("inside", ["", "transformer"])
def test_files_of_hugging_faces_cache_are_links_into_its_store(tmp_path, inside):
    blobs = tmp_path / "models--a--b" / "blobs"
    folder = tmp_path / "models--a--b" / "snapshots" / "0123" / inside
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    (blobs / "abcd").write_bytes(b"x")
    (folder / "x.safetensors").symlink_to(os.path.relpath(blobs / "abcd", folder))
    places, _ = resolve(str(folder), shards_of("x.safetensors"))
    assert places == {"x.safetensors": str(blobs / "abcd")}
    (tmp_path / "models--a--b" / "refs").write_bytes(b"x")
    (folder / "y.safetensors").symlink_to(tmp_path / "models--a--b" / "refs")
    with pytest.raises(PathError):
        resolve(str(folder), shards_of("y.safetensors"))


def test_a_shard_that_is_not_there_says_what_should_be_in_it(tmp_path):
    (tmp_path / "dangling").symlink_to("nowhere")
    places, missing = resolve(str(tmp_path), shards_of("gone", "dangling"))
    assert places == {}
    assert [type(fault) for fault in missing] == [MissingShardError] * 2
    assert "1 tensors" in str(missing[0])
    assert "a link to what is not there" in str(missing[1])


# -- folders ------------------------------------------------------------------------------------


def plain(path, **tensors):
    save_file(tensors or {"x": torch.ones(1)}, path)


def test_the_index_of_a_folder_is_its_checkpoint(tmp_path):
    plain(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    (tmp_path / "pytorch_model.bin.index.json").write_text("{}")
    assert find_checkpoint(str(tmp_path)).endswith("model.safetensors.index.json")


def test_the_one_checkpoint_of_a_folder_is_found_by_its_bytes(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "README.md").write_text("text")
    torch.save({}, tmp_path / "training_args.bin")
    plain(tmp_path / "weights")
    plain(tmp_path / ".hidden")
    assert find_checkpoint(str(tmp_path)).endswith("/weights")


def test_a_pickle_beside_a_trainers_own_is_the_checkpoint(tmp_path):
    for name in ("model.bin", "optimizer.pt", "training_args.bin"):
        torch.save({}, tmp_path / name)
    assert find_checkpoint(str(tmp_path)).endswith("/model.bin")


@pytest.mark.parametrize(
    ("names", "match"),
    [
        (["a.safetensors", "b.safetensors"], "several checkpoints and no index"),
        (["m-00001-of-00002.safetensors", "m-00002-of-00002.safetensors"], "without their index"),
        (["m-00001-of-00002.safetensors"], "one shard of 2"),
    ],
)
def test_a_folder_that_leaves_it_open_names_the_candidates(tmp_path, names, match):
    for name in names:
        plain(tmp_path / name)
    with pytest.raises(AmbiguousFolderError, match=match) as caught:
        find_checkpoint(str(tmp_path))
    assert caught.value.candidates == tuple(names)
    assert all(name in str(caught.value) for name in names)


def test_two_indexes_neither_of_which_is_the_usual_one_are_named(tmp_path):
    for name in ("a.safetensors.index.json", "b.safetensors.index.json"):
        (tmp_path / name).write_text("{}")
    with pytest.raises(AmbiguousFolderError, match="several indexes"):
        find_checkpoint(str(tmp_path))


def test_a_folder_without_a_checkpoint_is_a_file_not_found_error(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(MissingFileError):
        find_checkpoint(str(tmp_path))


# -- replacing a set ----------------------------------------------------------------------------


def write(folder, value, shards=3, **options):
    parts = [({f"k{n}": TensorPart(torch.full((8,), value + n))}, {}) for n in range(shards)]
    target = Target(folder=str(folder), stem="model", limit=None)
    write_set(target, parts, writer="test", metadata={}, **options)


def read(folder):
    """The first value and the count of what a folder holds; raises if it is no whole set."""
    index = parse_index((folder / "model.safetensors.index.json").read_bytes())
    values = [
        load_file(folder / index.weight_map[key])[key][0].item() - n
        for n, key in enumerate(index.weight_map)
    ]
    assert len(set(values)) == 1
    return values[0], len(values)


def test_a_set_written_over_another_leaves_just_its_own_files(tmp_path):
    for value in range(4):
        write(tmp_path, value, 3)
        assert read(tmp_path) == (value, 3)
        assert len(os.listdir(tmp_path)) == 4
    write(tmp_path, 9, 2)
    assert read(tmp_path) == (9, 2)
    assert len(os.listdir(tmp_path)) == 3


def test_no_file_that_the_old_index_names_is_touched_before_the_new_one_is_there(
    tmp_path, monkeypatch
):
    write(tmp_path, 1)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    original = os.rename

    def rename(source, target):
        assert {path: path.read_bytes() for path in before} == before
        original(source, target)

    monkeypatch.setattr(os, "rename", rename)
    write(tmp_path, 2)
    assert read(tmp_path) == (2, 3)


def test_files_that_another_index_names_stay(tmp_path):
    write(tmp_path, 1)
    other = json.loads((tmp_path / "model.safetensors.index.json").read_text())
    (tmp_path / "other.safetensors.index.json").write_text(json.dumps(other))
    names = {path.name for path in tmp_path.iterdir()}
    write(tmp_path, 2)
    assert names <= {path.name for path in tmp_path.iterdir()}


def test_an_index_that_cannot_be_read_keeps_everything(tmp_path):
    write(tmp_path, 1)
    (tmp_path / "other.safetensors.index.json").write_text("{")
    names = {path.name for path in tmp_path.iterdir()}
    write(tmp_path, 2)
    assert names <= {path.name for path in tmp_path.iterdir()}
    assert read(tmp_path) == (2, 3)


def test_an_index_of_hostile_names_makes_nothing_outside_vanish(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (tmp_path / "victim").write_bytes(b"x")
    names = ["../victim", str(tmp_path / "victim"), "..", "."]
    index = {"weight_map": {f"k{n}": name for n, name in enumerate(names)}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    write(folder, 1)
    assert (tmp_path / "victim").read_bytes() == b"x"
    assert read(folder) == (1, 3)


def test_a_snapshot_of_hugging_faces_cache_is_not_written_to(tmp_path):
    blobs, folder = tmp_path / "blobs", tmp_path / "snapshots" / "0123"
    blobs.mkdir()
    folder.mkdir(parents=True)
    index = {"weight_map": {"a": "model-00001-of-00001.safetensors"}}
    (blobs / "abcd").write_text(json.dumps(index))
    (folder / "model.safetensors.index.json").symlink_to("../../blobs/abcd")
    for shards in (1, 3):
        with pytest.raises(PathError, match="leads out"):
            write(folder, 1, shards)
    assert json.loads((blobs / "abcd").read_text()) == index
    assert len(os.listdir(folder)) == 1


def test_a_user_error_in_the_last_shard_shows_before_the_first_is_written(tmp_path):
    folder = tmp_path / "new"
    good = ({"a": TensorPart(torch.ones(1))}, {})
    bad = ({"b\n": TensorPart(torch.ones(1))}, {})
    with pytest.raises(AoserialError):
        write_set(
            Target(folder=str(folder), stem="model", limit=None),
            [good, bad],
            writer="test",
            metadata={},
        )
    assert not folder.exists()


def test_progress_counts_the_bytes_of_all_shards(tmp_path):
    seen = []
    write(tmp_path, 1, progress=lambda done, total: seen.append((done, total)))
    assert seen == sorted(seen)
    assert seen[-1][0] == seen[-1][1]
