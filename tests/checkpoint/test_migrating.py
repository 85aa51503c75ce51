"""`plan` and `migrate`: one file brought to the heads of its types."""

from __future__ import annotations

import errno
import os

import pytest
import torch
from support.files import edit_envelope, envelope_of
from support.tensors import same_bytes

import aoserial
from aoserial.errors import LossyMigrationError, MigrationError


@aoserial.register("moving.Scaled", version=3)
class Scaled(aoserial.VersionedTensor):
    """Version 1 had `inverse_scale`, version 2 `scale`, version 3 forgets `note`."""

    qdata: torch.Tensor
    scale: torch.Tensor

    def dequantize(self, dtype=None):
        return (self.qdata * self.scale).to(dtype or self.dtype)


@aoserial.migration("moving.Scaled", 1, 2)
def invert_the_scale(record):
    old = record.parts["inverse_scale"]
    new = aoserial.compute(lambda s: 1 / s, old, dtype=old.dtype, shape=old.shape)
    return record.at(2).drop("inverse_scale").put(scale=new)


@aoserial.migration("moving.Scaled", 2, 3, lossy="the note")
def forget_the_note(record):
    return record.at(3).drop("note")


@pytest.fixture
def old(tmp_path):
    """A file of version 1."""
    path = tmp_path / "old.safetensors"
    state = {
        f"l{i}.weight": Scaled(torch.ones(4, 4) * i, torch.full((4, 1), 4.0)) for i in range(3)
    }
    aoserial.save(state | {"bias": torch.ones(2)}, path, metadata={"note": "mine"})

    def change(envelope):
        envelope["schemas"][0] = {"type": "moving.Scaled", "version": 1}
        row = envelope["records"][0]
        row["parts"] = ["qdata", "inverse_scale"]
        row["attributes"] = {"note": "hello"}
        row["keys"] = {name: {"inverse_scale": f"{name[:3]}_weight_scale"} for name in row["names"]}
        envelope["future"] = {"kept": True}

    return edit_envelope(path, change)


def test_the_plan_says_what_would_be_done_and_what_it_costs(old):
    plan = aoserial.plan(old)
    (row,) = plan.rows
    assert (row.source, row.target) == ("moving.Scaled@1", "moving.Scaled@3")
    assert row.steps == ("invert_the_scale", "forget_the_note")
    assert (row.count, row.bytes_copied, row.bytes_computed) == (3, 3 * 64, 3 * 16)
    assert not row.header_only
    assert row.lossy == ("forget_the_note: the note",)
    assert (plan.plain_count, plan.plain_bytes) == (1, 8)


def test_the_plan_says_how_large_the_new_file_will_be(old, tmp_path):
    plan = aoserial.plan(old)
    assert plan.bytes_before == old.stat().st_size
    aoserial.migrate(old, tmp_path / "new", allow_lossy=True)
    assert plan.bytes_after == pytest.approx((tmp_path / "new").stat().st_size, abs=2 * 4096)


def test_a_file_that_the_disk_has_no_room_for_is_refused_before_one_is_made(
    old, tmp_path, monkeypatch
):
    monkeypatch.setattr("aoserial.storage.atomic.room_for", lambda path: 100)
    monkeypatch.setattr("aoserial.storage.atomic.create_temp", lambda _: pytest.fail("a file"))
    state = {"w": torch.ones(100)}
    with pytest.raises(OSError, match="the disk has room for 100") as caught:
        aoserial.save(state, tmp_path / "new")
    assert (caught.value.errno, caught.value.state) == (errno.ENOSPC, "unchanged")
    monkeypatch.undo()
    monkeypatch.setattr("aoserial.storage.atomic.room_for", lambda path: 100)
    with pytest.raises(OSError, match="the disk has room for 100"):
        aoserial.migrate(old, in_place=True, allow_lossy=True)
    assert os.listdir(tmp_path) == ["old.safetensors"]


def test_a_lossy_step_does_not_run_unless_it_is_allowed(old, tmp_path):
    with pytest.raises(LossyMigrationError, match="forget_the_note: the note.*allow_lossy"):
        aoserial.migrate(old, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    aoserial.migrate(old, tmp_path / "new", allow_lossy=True)
    assert envelope_of(tmp_path / "new")["trail"][1]["lossy"] == "the note"


def test_migrating_stops_where_it_is_told_to(old, tmp_path):
    aoserial.migrate(old, tmp_path / "new", to="moving.Scaled@2")
    assert envelope_of(tmp_path / "new")["schemas"][0]["version"] == 2


def test_the_migrated_file_holds_the_heads_a_trail_and_everything_else(old, tmp_path):
    new = tmp_path / "new"
    aoserial.migrate(old, new, allow_lossy=True)
    envelope = envelope_of(new)
    assert [(s["from"], s["to"], s["count"]) for s in envelope["trail"]] == [
        ("moving.Scaled@1", "moving.Scaled@2", 3),
        ("moving.Scaled@2", "moving.Scaled@3", 3),
    ]
    assert envelope["future"] == {"kept": True}
    with aoserial.open(new) as checkpoint:
        assert checkpoint.metadata["note"] == "mine"
    loaded, expected = aoserial.load(new), aoserial.load(old)
    assert same_bytes(loaded["bias"], expected["bias"])
    assert same_bytes(loaded["l2.weight"].dequantize(), torch.full((4, 4), 0.5))
    assert torch.equal(aoserial.load(new)["l2.weight"].scale, torch.full((4, 1), 0.25))
    assert aoserial.verify(new, deep=True)


def test_the_source_is_never_touched(old, tmp_path):
    before = old.read_bytes(), old.stat().st_mtime_ns
    aoserial.migrate(old, tmp_path / "new", allow_lossy=True)
    assert (old.read_bytes(), old.stat().st_mtime_ns) == before


def test_running_twice_changes_nothing(old, tmp_path):
    aoserial.migrate(old, tmp_path / "once", allow_lossy=True)
    aoserial.migrate(tmp_path / "once", tmp_path / "twice")
    assert (tmp_path / "once").read_bytes() == (tmp_path / "twice").read_bytes()


def test_in_place_replaces_the_file_and_leaves_one_alone_that_needs_nothing(old, tmp_path):
    aoserial.migrate(old, tmp_path / "new", allow_lossy=True)
    done = aoserial.migrate(old, in_place=True, allow_lossy=True)
    assert done.pending
    assert old.read_bytes() == (tmp_path / "new").read_bytes()
    inode = old.stat().st_ino
    assert not aoserial.migrate(old, in_place=True).pending
    assert old.stat().st_ino == inode
    assert sorted(os.listdir(tmp_path)) == ["new", "old.safetensors"]


@aoserial.register("moving.Failing", version=2)
class Failing(aoserial.VersionedTensor):
    qdata: torch.Tensor


@aoserial.migration("moving.Failing", 1, 2)
def run_out_of_memory(record):
    def fail(_):
        raise RuntimeError("no memory")

    codes = record.parts["qdata"]
    return record.at(2).put(
        qdata=aoserial.compute(fail, codes, dtype=codes.dtype, shape=codes.shape)
    )


def test_a_step_that_fails_at_the_data_leaves_nothing_behind(tmp_path):
    old = tmp_path / "old"
    aoserial.save({"a": torch.ones(3), "w": Failing(torch.ones(4))}, old)
    edit_envelope(old, lambda e: e.update(schemas=[{"type": "moving.Failing", "version": 1}]))
    for read in (aoserial.load, lambda path: aoserial.migrate(path, tmp_path / "new")):
        with pytest.raises(MigrationError, match="fail failed: RuntimeError: no memory"):
            read(old)
    assert os.listdir(tmp_path) == ["old"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, MigrationError),
        ({"dst": "x", "in_place": True}, MigrationError),
        ({"dst": "x", "to": "moving.Scaled"}, MigrationError),
        ({"dst": "x", "to": "moving.Scaled@two"}, MigrationError),
    ],
    ids=str,
)
def test_a_call_that_does_not_say_what_to_do_is_refused(old, arguments, error):
    with pytest.raises(error):
        aoserial.migrate(old, **arguments)


def test_inert_records_are_carried_as_they_are(old, tmp_path):
    row = {"type": "gone.Type", "version": 9, "fingerprint": "0123"}
    edit_envelope(old, lambda e: e.update(schemas=[row]))
    assert aoserial.plan(old).inert == ("l0.weight", "l1.weight", "l2.weight")
    aoserial.migrate(old, tmp_path / "new")
    assert envelope_of(tmp_path / "new")["schemas"] == [row]
    (before,), (after,) = (envelope_of(p)["records"] for p in (old, tmp_path / "new"))
    del before["keys"]  # parts come to lie under their usual keys
    assert after == before
