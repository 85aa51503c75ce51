"""Sets migrated shard by shard: what comes along, and what an interrupted one goes on with."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from support.files import edit_envelope

import aoserial
from aoserial.checkpoint.converting import convert
from aoserial.cli.app import run
from aoserial.errors import PathError
from aoserial.storage import Source
from aoserial.storage.shards import writing
from aoserial.storage.shards.index import parse_index

INDEX = "model.safetensors.index.json"


@aoserial.register("resuming.Scaled", version=2)
class Scaled(aoserial.VersionedTensor):
    """Version 1 had `inverse_scale`."""

    qdata: torch.Tensor
    scale: torch.Tensor


@aoserial.migration("resuming.Scaled", 1, 2)
def invert_the_scale(record):
    old = record.parts["inverse_scale"]
    new = aoserial.compute(lambda s: 1 / s, old, dtype=old.dtype, shape=old.shape)
    return record.at(2).drop("inverse_scale").put(scale=new)


def be_old(envelope):
    for schema in envelope["schemas"]:
        schema.update(version=1)
        schema.pop("fingerprint")
    for row in envelope["records"]:
        row["parts"] = ["qdata", "inverse_scale"]
        row["keys"] = {name: {"inverse_scale": f"{name[:3]}_weight_scale"} for name in row["names"]}


@pytest.fixture
def old(tmp_path):
    """A set of three shards of version 1, with what lies beside it."""
    folder = tmp_path / "old"
    state = {f"l{n}.weight": Scaled(torch.ones(64, 64) * n, torch.ones(64, 1)) for n in range(3)}
    aoserial.save(state, folder, max_shard_size=20_000)
    for shard in folder.glob("*.safetensors"):
        edit_envelope(shard, be_old)
    index = json.loads((folder / INDEX).read_text())
    del index["metadata"]["aoserial"]
    (folder / INDEX).write_text(json.dumps(index))
    (folder / "config.json").write_text('{"quantization_config": {"quant_method": "torchao"}}')
    (folder / "tokenizer.json").write_text("{}")
    (folder / ".hidden").write_text("")
    torch.save({"lr": torch.ones(1)}, folder / "optimizer.pt")
    return folder


@pytest.fixture
def whole(old, tmp_path):
    """What the set becomes when nothing gets in between."""
    aoserial.migrate(old, f"{tmp_path}/whole/")
    return held(tmp_path / "whole")


def held(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


class Killed(BaseException):
    pass


def stop_at(shard: int):
    """A progress that ends the process when so many shards are finished."""

    def progress(done, total):
        if done > shard * total / 3 + 5000:
            raise Killed

    return progress


def begun(old, new, finished=2):
    with pytest.raises(Killed):
        aoserial.migrate(old, f"{new}/", progress=stop_at(finished))
    return new


def test_a_set_becomes_a_set_of_the_same_shards_and_its_folder_comes_along(old, tmp_path, whole):
    names = [f"model-0000{n}-of-00003.safetensors" for n in (1, 2, 3)]
    assert sorted(whole) == ["config.json", *names, INDEX, "tokenizer.json"]
    found = parse_index(whole[INDEX])
    assert found.weight_map.keys() >= {"l0._weight_scale", "l2._weight_qdata"}
    assert aoserial.verify(tmp_path / "whole", deep=True)
    assert torch.equal(
        aoserial.load(tmp_path / "whole")["l2.weight"].qdata, torch.full((64, 64), 2.0)
    )


def test_what_the_configuration_says_of_the_tensors_is_told(old, tmp_path, capsys):
    (note,) = aoserial.plan(old).notes
    assert "quantization_config of 'torchao'" in note
    assert run(["migrate", str(old), f"{tmp_path}/new/"]) == 0
    assert "note: config.json" in capsys.readouterr().out


def test_files_that_are_there_already_are_not_written_over(old, tmp_path):
    new = tmp_path / "new"
    new.mkdir()
    (new / "config.json").write_text("mine")
    aoserial.migrate(old, new)
    assert (new / "config.json").read_text() == "mine"
    assert (new / "tokenizer.json").exists()


def test_a_file_that_cannot_come_along_is_told_before_a_shard_is_written(
    old, tmp_path, monkeypatch
):
    original = Source.open.__func__

    def forbidden(cls, path, **options):
        if os.path.basename(path) == "tokenizer.json":
            raise PathError("cannot be opened: Permission denied", errno=errno.EACCES)
        return original(cls, path, **options)

    monkeypatch.setattr(Source, "open", classmethod(forbidden))
    with pytest.raises(PathError, match="tokenizer.json: cannot be opened"):
        aoserial.migrate(old, f"{tmp_path}/new/")
    assert not (tmp_path / "new").exists()


def test_the_source_is_never_touched(old, tmp_path):
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}
    begun(old, tmp_path / "new")
    aoserial.migrate(old, f"{tmp_path}/new/", resume=True)
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in old.iterdir()}


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_what_was_killed_goes_on_where_it_stopped_and_comes_out_the_same(
    old, tmp_path, whole, finished
):
    new = begun(old, tmp_path / "new", finished)
    assert INDEX not in held(new)
    kept = {path.name: path.stat().st_mtime_ns for path in new.glob("model-*")}
    assert len(kept) == finished
    aoserial.migrate(old, f"{new}/", resume=True)
    assert held(new) == whole
    assert {name: (new / name).stat().st_mtime_ns for name in kept} == kept


def test_without_resume_everything_is_written_anew(old, tmp_path, whole):
    new = begun(old, tmp_path / "new")
    kept = {path: path.stat().st_ino for path in new.glob("model-*")}
    aoserial.migrate(old, f"{new}/")
    assert held(new) == whole
    assert all(path.stat().st_ino != inode for path, inode in kept.items())


def test_a_finished_shard_that_was_damaged_since_is_written_anew(old, tmp_path, whole):
    new = begun(old, tmp_path / "new")
    shard = min(new.glob("model-*"))
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    aoserial.migrate(old, f"{new}/", resume=True)
    assert held(new) == whole


def test_a_journal_of_a_source_that_changed_since_is_of_no_use(old, tmp_path):
    new = begun(old, tmp_path / "new")
    shard = min(old.glob("model-*"))
    raw = bytearray(shard.read_bytes())
    raw[-1] ^= 1
    shard.write_bytes(raw)
    aoserial.migrate(old, f"{new}/", resume=True)
    aoserial.migrate(old, f"{tmp_path}/again/")
    assert held(new) == held(tmp_path / "again")


@pytest.mark.parametrize("text", ["", "[]", "{", '{"work": 1}', "null", "[" * 100_000])
def test_a_broken_journal_is_of_no_use(old, tmp_path, whole, text):
    new = begun(old, tmp_path / "new")
    (journal,) = new.glob(".aoserial-*")
    journal.write_text(text)
    aoserial.migrate(old, f"{new}/", resume=True)
    assert held(new) == whole


def test_a_journal_that_names_a_file_elsewhere_is_not_followed(old, tmp_path, whole):
    new = begun(old, tmp_path / "new")
    (journal,) = new.glob(".aoserial-*")
    told = json.loads(journal.read_text())
    told["finished"][0]["name"] = "../old/model-00001-of-00003.safetensors"
    journal.write_text(json.dumps(told))
    aoserial.migrate(old, f"{new}/", resume=True)
    assert held(new) == whole


def test_an_end_between_the_index_and_the_journal_is_gone_on_with(
    old, tmp_path, whole, monkeypatch
):
    def die(_):
        raise Killed

    new = tmp_path / "new"
    with monkeypatch.context() as patched:
        patched.setattr(writing, "remove_journal", die)
        with pytest.raises(Killed):
            aoserial.migrate(old, f"{new}/")
    assert INDEX in held(new)
    aoserial.migrate(old, f"{new}/", resume=True)
    assert held(new) == whole


def test_a_set_that_is_replaced_in_place_is_gone_on_with(old, tmp_path, whole):
    before = held(old)
    with pytest.raises(Killed):
        aoserial.migrate(old, in_place=True, progress=stop_at(2))
    assert {name: raw for name, raw in held(old).items() if name in before} == before
    aoserial.migrate(old, in_place=True, resume=True)
    assert aoserial.verify(old, deep=True)
    found = parse_index((old / INDEX).read_bytes())
    shards = [(old / name).read_bytes() for name in sorted(found.shards)]
    assert shards == [whole[f"model-0000{n}-of-00003.safetensors"] for n in (1, 2, 3)]
    assert {path.name for path in old.glob("*.safetensors")} == found.shards.keys()
    assert list(old.glob(".aoserial-*")) == []


def test_a_set_that_the_disk_has_no_room_for_is_refused_before_a_shard_is_written(
    old, tmp_path, monkeypatch
):
    monkeypatch.setattr("aoserial.storage.shards.target.room_for", lambda path: 30_000)
    with pytest.raises(OSError, match="the set needs .* the disk has room for 30000"):
        aoserial.migrate(old, f"{tmp_path}/new/")
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.parametrize("size", [None, 4])
def test_of_begun_work_that_is_saved_over_nothing_is_left(old, tmp_path, size):
    state = {"one": torch.ones(2), "two": torch.ones(2)}
    aoserial.save(state, f"{tmp_path}/alone/", max_shard_size=size)
    new = begun(old, tmp_path / "new")
    aoserial.save(state, new, max_shard_size=size)
    assert held(new) == held(tmp_path / "alone")


def test_a_journal_that_is_not_ours_has_no_file_removed(old, tmp_path):
    new = begun(old, tmp_path / "new")
    (journal,) = new.glob(".aoserial-*")
    others = ["mine.safetensors", "other-00001-of-00001.safetensors", "../old/config.json"]
    for name in others[:2]:
        (new / name).touch()
    told = json.loads(journal.read_text())
    journal.write_text(json.dumps(told | {"names": others}))
    aoserial.save({"one": torch.ones(2)}, new)
    assert all((new / name).exists() for name in others)


def test_bytes_that_had_gone_bad_before_stay_known_to_be(old, tmp_path):
    """What no step touches keeps the CRC-32 it came with, though the index has a new SHA-256."""
    shard = old / "model-00002-of-00003.safetensors"
    raw = bytearray(shard.read_bytes())
    raw[-300] ^= 1  # of the codes: the scale, which a step reads, has the last 256 bytes
    shard.write_bytes(raw)
    aoserial.migrate(old, f"{tmp_path}/new/")
    (fault,) = aoserial.verify(tmp_path / "new", deep=True).faults
    assert fault.location.shard == shard.name
    assert fault.location.name == "l1._weight_qdata"


@pytest.fixture
def quantized(tmp_path):
    """A set of three shards of a type that torchao has too, with what lies beside it."""
    folder = tmp_path / "quantized"
    weights = [aoserial.Int8Tensor.from_float(torch.randn(128, 128)) for _ in range(3)]
    state = {f"l{n}.weight": weight for n, weight in enumerate(weights)}
    aoserial.save(state, folder, max_shard_size=20_000)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.mark.parametrize("to", ["safetensors", "plain", "torchao"])
def test_a_conversion_is_gone_on_with_as_well(quantized, tmp_path, to):
    old = quantized
    convert(old, f"{tmp_path}/at-once/", to=to)
    new = tmp_path / "new"
    with pytest.raises(Killed):
        convert(old, f"{new}/", to=to, progress=stop_at(2))
    kept = {path: path.stat().st_ino for path in new.glob("model-*")}
    assert len(kept) == 2
    convert(old, f"{new}/", to=to, resume=True)
    assert held(new) == held(tmp_path / "at-once")
    assert all(path.stat().st_ino == inode for path, inode in kept.items())
    assert (new / "config.json").exists()
    assert aoserial.load(new).keys() == aoserial.load(old).keys()


@pytest.mark.parametrize("where", ["new/", "there", "pytorch_model.safetensors.index.json"])
def test_an_archive_is_not_written_where_a_set_is_meant(quantized, tmp_path, where, capsys):
    (tmp_path / "there").mkdir()
    assert run(["convert", str(quantized), f"{tmp_path}/{where}", "--to", "pt"]) == 2
    assert "a torch.save archive is one file" in capsys.readouterr().err
    assert sorted(os.listdir(tmp_path)) == ["quantized", "there"]


def test_shards_of_another_conversion_are_not_gone_on_with(quantized, tmp_path):
    old = quantized
    convert(old, f"{tmp_path}/at-once/")
    with pytest.raises(Killed):
        convert(old, f"{tmp_path}/new/", to="plain", progress=stop_at(2))
    convert(old, f"{tmp_path}/new/", resume=True)
    assert held(tmp_path / "new") == held(tmp_path / "at-once")


@pytest.mark.parametrize("over", [False, True], ids=["fresh", "over a set"])
def test_a_save_that_is_interrupted_leaves_no_shards_since_nobody_could_go_on(tmp_path, over):
    folder = tmp_path / "new"
    state = {f"l{n}": torch.full((64, 64), float(n)) for n in range(3)}
    if over:
        aoserial.save(state, folder, max_shard_size=20_000)
    before = held(folder) if over else {}
    with pytest.raises(Killed):
        aoserial.save(state, folder, max_shard_size=20_000, progress=stop_at(2))
    assert held(folder) == before


def test_what_another_process_put_in_the_place_of_a_shard_is_not_removed(tmp_path):
    folder, first = tmp_path / "new", "model-00001-of-00003.safetensors"
    state = {f"l{n}": torch.full((64, 64), float(n)) for n in range(3)}

    def replace_then_die(done, total):
        if done > total * 2 / 3:
            (tmp_path / "theirs").write_text("theirs")
            (tmp_path / "theirs").replace(folder / first)
            raise Killed

    with pytest.raises(Killed):
        aoserial.save(state, folder, max_shard_size=20_000, progress=replace_then_die)
    assert held(folder) == {first: b"theirs"}


class Told:
    """A progress with shards."""

    def __init__(self):
        self.whole, self.shards = [], {}

    def __call__(self, done, total):
        self.whole.append((done, total))

    def shard(self, name, done, total):
        self.shards.setdefault(name, []).append((done, total))


def check_told(told, count=3):
    assert len(told.shards) == count
    for steps in [told.whole, *told.shards.values()]:
        assert steps == sorted(steps)
        assert len({total for _, total in steps}) == 1
        assert steps[-1][0] == steps[-1][1]


@pytest.mark.parametrize(
    "work",
    [
        lambda old, new, told: aoserial.migrate(old, new, progress=told),
        lambda old, new, told: convert(old, new, progress=told),
        lambda old, _, told: aoserial.load(old, progress=told),
        lambda old, _, told: aoserial.load(old, verify="checksums", progress=told),
        lambda old, _, told: aoserial.verify(old, deep=True, progress=told),
    ],
    ids=["migrate", "convert", "load", "load with checksums", "verify"],
)
def test_a_progress_with_shards_is_told_of_each_and_of_all(old, tmp_path, work):
    told = Told()
    work(old, f"{tmp_path}/new/", told)
    check_told(told)


def test_shards_that_were_finished_before_are_told_of_as_done(old, tmp_path):
    new, told = begun(old, tmp_path / "new"), Told()
    aoserial.migrate(old, f"{new}/", resume=True, progress=told)
    check_told(told)
    first = told.shards["model-00001-of-00003.safetensors"]
    assert len(first) == 1
    assert first[0][0] == first[0][1] == (new / "model-00001-of-00003.safetensors").stat().st_size


PROGRAM = """
import signal, sys, time
# a shell has what it starts in the background ignore it
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {tests!r})
import checkpoint.test_resuming as here
from aoserial.cli.app import run
from aoserial.storage.shards import resuming

def wait(self, *_):
    print("finished", flush=True)
    time.sleep(60)

add = resuming.Journal.add
resuming.Journal.add = lambda self, *given: (add(self, *given), wait(self))
sys.exit(run(["migrate", {old!r}, {new!r}]))
"""


def test_an_interrupted_command_says_how_to_go_on_and_does(old, tmp_path, whole, capsys):
    tests, new = str(Path(__file__).parents[1]), f"{tmp_path}/new/"
    program = PROGRAM.format(tests=tests, old=str(old), new=new)
    with subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout.readline() == "finished\n"
        child.send_signal(signal.SIGINT)
        _, told = child.communicate(timeout=300)
    assert child.returncode == 130
    assert "--resume goes on with them" in told
    assert "Traceback" not in told
    left = sorted(path.name for path in (tmp_path / "new").iterdir())
    assert left == [".aoserial-model.resume.json", "model-00001-of-00003.safetensors"]
    assert run(["migrate", str(old), new, "--resume"]) == 0
    assert held(tmp_path / "new") == whole
