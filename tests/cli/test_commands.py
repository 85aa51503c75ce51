"""The commands, run as a person or a script runs them."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from support.containers import zipped
from support.files import edit_envelope, join

import aoserial
from aoserial.cli.app import run

CASE = Path(__file__).parents[2] / "fixtures/torchao-0.15.0/float8wo_v2/model.safetensors"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    aoserial.save({"m.weight": weight, "tied": weight, "m.bias": torch.ones(8)}, path)
    return path


def test_inspect_shows_types_versions_counts_bytes_and_what_would_migrate(capsys):
    assert run(["inspect", str(CASE)]) == 0
    shown = capsys.readouterr().out
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("torchao.Float8")]
    assert row == [
        "torchao.Float8Tensor",
        "2",
        "2",
        "1",
        "2.1",
        "KiB",
        "8.50",
        "aoserial.Float8Tensor@1",
    ]
    assert "writer: torchao 0.15 and later, by its fields" in shown
    assert "torchao 0.15 and later: torchao.Float8Tensor@2 has _tensor_data_names" in shown


def test_inspect_as_json_is_for_machines(path, capsys):
    assert run(["inspect", "--json", str(path)]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["writer"] == "aoserial 0.1.0"
    assert [(row["type"], row["count"]) for row in told["types"]] == [
        ("aoserial.Int8Tensor", 1),
        ("torch.Tensor", 1),
    ]
    assert told["types"][0]["bits_per_weight"] == 8 * (128 + 32) / 128
    assert told["ties"] == 1


def test_inspect_says_what_would_not_load_and_exits_with_findings(path, capsys):
    edit_envelope(path, lambda e: e["schemas"][0].update(version=9))
    assert run(["inspect", str(path)]) == 1
    shown = capsys.readouterr().out
    assert "does not load" in shown
    assert "aoserial.Int8Tensor@9 is newer than this reader" in shown


def test_inspect_shows_the_head_of_an_unknown_type_as_unknown(path, capsys):
    edit_envelope(path, lambda e: e["schemas"][0].update(type="gone.Tensor"))
    assert run(["inspect", str(path)]) == 0
    assert "unknown" in capsys.readouterr().out


def test_migrate_writes_a_new_file(tmp_path, capsys):
    assert run(["migrate", str(CASE), str(tmp_path / "new.safetensors")]) == 0
    assert "1 tensors migrated" in capsys.readouterr().out
    assert isinstance(
        aoserial.load(tmp_path / "new.safetensors")["0.weight"], aoserial.Float8Tensor
    )


def test_migrate_dry_run_shows_the_plan_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("aoserial.cli.app.room_for", lambda path: 3 << 20)
    assert run(["migrate", str(CASE), str(tmp_path / "new"), "--dry-run"]) == 0
    shown = capsys.readouterr().out
    (row,) = [line.split() for line in shown.splitlines() if line.startswith("torchao.Float8")]
    assert row[2:4] == ["leave_torchao_float8", "1"]
    assert row[-2:] == ["yes", "yes"]  # header only, lossless
    assert f"2.8 KiB now, about 2.8 KiB afterwards, of 3.0 MiB free in {tmp_path}" in shown
    assert os.listdir(tmp_path) == []


def test_a_dry_run_says_that_the_disk_has_no_room(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("aoserial.cli.app.room_for", lambda path: 1000)
    assert run(["migrate", str(CASE), str(tmp_path / "new"), "--dry-run"]) == 1
    assert "no room" in capsys.readouterr().out


def test_verify_tells_clean_from_damaged(path, capsys):
    assert run(["verify", "--deep", str(path)]) == 0
    assert "clean (header, records and every byte)" in capsys.readouterr().out
    path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert run(["verify", str(path)]) == 0
    assert run(["verify", "--deep", str(path)]) == 1
    assert "CRC-32" in capsys.readouterr().out


def test_verify_takes_several_paths_and_tells_of_each(path, tmp_path, capsys):
    damaged = tmp_path / "damaged.safetensors"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    damaged.write_bytes(data)
    assert run(["verify", "--deep", str(damaged), str(path)]) == 1
    told = capsys.readouterr().out
    assert "fault: " in told
    assert f"{path}: clean" in told


def test_verify_does_not_call_bytes_checked_that_have_no_checksums(capsys):
    assert run(["verify", "--deep", str(CASE)]) == 0
    shown = capsys.readouterr().out
    assert "not verified: the data" in shown
    assert "every byte" not in shown


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["inspect", "no-such-file"], "no such file"),
        (["inspect", str(Path(__file__))], "not a safetensors file"),
        (["inspect"], "Missing argument"),
        (["frobnicate"], "No such command"),
        (["migrate", str(CASE)], "say where to write"),
        (["migrate", str(CASE), "x", "--in-place"], "contradict"),
        (["migrate", str(CASE), "x", "--assume", "novalue"], "not KEY=VALUE"),
        (["migrate", str(CASE), "x", "--to", "nonsense"], "not TYPE@VERSION"),
        (["migrate", str(CASE), "/no/such/folder/x"], "/no/such/folder"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ".join(map(str, value))[:30],
)
def test_an_error_is_a_sentence_on_stderr_and_status_two(arguments, told, capsys):
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert told in captured.err
    assert captured.err.startswith("aoserial: ")
    assert "Traceback" not in captured.err
    assert captured.out == ""


def test_scan_lists_what_a_pickle_would_run_and_runs_nothing(tmp_path, capsys):
    class Evil:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/ran",)

    (tmp_path / "evil.pt").write_bytes(pickle.dumps(Evil()))
    assert run(["scan", str(tmp_path / "evil.pt")]) == 1
    shown = capsys.readouterr().out
    assert "posix.system" in shown
    assert not (tmp_path / "ran").exists()


def test_scan_finds_nothing_in_a_file_of_tensors(tmp_path, capsys):
    torch.save({"x": torch.ones(2)}, tmp_path / "plain.pt")
    assert run(["scan", str(tmp_path / "plain.pt")]) == 0
    assert "nothing in it runs code" in capsys.readouterr().out
    assert run(["scan", str(CASE)]) == 0
    assert "holds no pickle" in capsys.readouterr().out


@pytest.fixture
def folder(tmp_path):
    """Pickles that run nothing, and what lies beside them in a repository of models."""
    folder = tmp_path / "repository"
    (folder / "below").mkdir(parents=True)
    torch.save({"x": torch.ones(2)}, folder / "pytorch_model-00001-of-00002.bin")
    torch.save({"y": torch.ones(2)}, folder / "below" / "scheduler.pt")
    (folder / "linked.bin").symlink_to(folder / "below" / "scheduler.pt")
    (folder / "model.safetensors").write_bytes(CASE.read_bytes())
    (folder / "config.json").write_text('{"a": 1}')
    (folder / "README.md").write_text("This is a model.\n")
    (folder / "vocab.txt").write_text("[PAD]\nI\n")
    return folder


class Evil:
    def __reduce__(self):
        return os.system, ("true",)


def test_scan_of_a_folder_reads_every_file_in_it_and_below(folder, capsys):
    assert run(["scan", str(folder)]) == 0
    shown = capsys.readouterr()
    assert "scheduler.pt: zip, nothing in it runs code" in shown.out
    assert "7 files: 0 with findings, 3 whose pickles run no code, 4 without a" in shown.out
    assert shown.err == ""


@pytest.mark.parametrize("name", ["below/model.pt", "tokenizer.json", ".hidden"])
def test_one_file_with_findings_makes_a_folder_one_with_findings(folder, capsys, name):
    (folder / name).write_bytes(pickle.dumps(Evil()))
    (folder / "gone.bin").symlink_to(folder / "nowhere")
    assert run(["scan", str(folder)]) == 1
    shown = capsys.readouterr()
    assert str(folder / name) in shown.out
    assert "posix.system" in shown.out
    assert "1 with findings" in shown.out
    assert "gone.bin" in shown.err


@pytest.mark.parametrize(
    ("name", "told"),
    [("model.pth", "git-LFS pointer"), ("odd.zip", "odd.zip"), ("to", "not followed")],
)
def test_what_a_scan_of_a_folder_cannot_read_is_an_error_and_not_harmless(
    folder, tmp_path, capsys, name, told
):
    texts = {
        "model.pth": b"version https://git-lfs.github.com/spec/v1\n",
        "odd.zip": b"PK\x03\x04 and no archive",
    }
    if name in texts:
        (folder / name).write_bytes(texts[name])
    else:
        (folder / name).symlink_to(tmp_path, target_is_directory=True)
    assert run(["scan", str(folder)]) == 2
    shown = capsys.readouterr()
    assert told in shown.err
    assert "1 that could not be read" in shown.out


def test_scan_of_an_index_reads_the_files_that_it_names(folder, capsys):
    first, second = (f"pytorch_model-0000{n}-of-00002.bin" for n in (1, 2))
    index = folder / "pytorch_model.bin.index.json"
    index.write_text(json.dumps({"weight_map": {"x": first, "y": second}}))
    assert run(["scan", str(index)]) == 2
    assert second in capsys.readouterr().err
    (folder / second).write_bytes(pickle.dumps(Evil()))
    assert run(["scan", str(index)]) == 1
    assert "2 files: 1 with findings, 1 whose pickles run no code" in capsys.readouterr().out


def test_a_pickle_that_spends_the_budget_before_it_does_anything_is_not_called_harmless(
    folder, capsys
):
    (folder / "notes").write_bytes(b"\x80\x04" + b"(" * 3_000_000 + pickle.dumps(Evil())[2:])
    assert run(["scan", str(folder)]) != 0
    assert "notes" in "".join(capsys.readouterr())


def test_scan_calls_nothing_harmless_that_it_could_not_read_to_the_end(tmp_path, capsys):
    stream = pickle.dumps(OrderedDict(x=1), protocol=2)
    (tmp_path / "cut.pt").write_bytes(zipped(stream[:-3]))
    assert run(["scan", str(tmp_path / "cut.pt")]) == 1
    shown = capsys.readouterr().out
    assert "not read to the end" in shown
    assert "runs code" not in shown


def test_convert_writes_another_format_and_says_what_it_wrote(path, tmp_path, capsys):
    assert run(["convert", str(path), str(tmp_path / "x.pt")]) == 0
    shown = capsys.readouterr().out
    assert "x.pt: 1 quantized tensors, 1 plain, converted to pt" in shown
    assert torch.load(tmp_path / "x.pt", weights_only=True).keys() == aoserial.load(path).keys()
    assert run(["convert", str(path), str(tmp_path / "y.safetensors"), "--to", "plain"]) == 0
    assert type(aoserial.load(tmp_path / "y.safetensors")["m.weight"]) is torch.Tensor


def test_convert_to_plain_names_what_is_inert_and_writes_nothing(path, tmp_path, capsys):
    edit_envelope(path, lambda e: e["schemas"][0].update(type="gone.Tensor"))
    assert run(["convert", str(path), str(tmp_path / "x"), "--to", "plain"]) == 2
    told = capsys.readouterr().err
    assert "m.weight: is inert: no type 'gone.Tensor' is registered" in told
    assert "Traceback" not in told
    assert not (tmp_path / "x").exists()
    assert run(["convert", str(path), str(path)]) == 2
    assert run(["convert", str(path), str(tmp_path / "x"), "--to", "zip"]) == 2


def test_convert_takes_answers_to_what_a_file_cannot_tell(tmp_path, capsys):
    case = CASE.parents[2] / "torchao-0.17.0/nvfp4_config/model.safetensors"
    assert run(["convert", str(case), str(tmp_path / "x"), "--to", "plain"]) == 0
    assert "note: assumed scale_product_dtype=float32 for 1 tensors" in capsys.readouterr().out
    answered = ["--assume", "scale_product_dtype=bfloat16"]
    assert run(["convert", str(case), str(tmp_path / "y"), "--to", "plain", *answered]) == 0
    assert "note" not in capsys.readouterr().out


def test_names_from_a_file_are_printed_with_control_characters_escaped(tmp_path, capsys):
    header = {
        "__metadata__": {"aoserial": "\x1b[2J"},
        "x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]},
    }
    path = join(tmp_path / "evil\x1b[31m.safetensors", header, b"\0" * 4)
    assert run(["inspect", str(path)]) == 2
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out + captured.err


def test_markup_in_a_name_is_text(tmp_path, capsys):
    path = tmp_path / "[bold]x.safetensors"
    aoserial.save({"t": torch.ones(1)}, path)
    assert run(["inspect", str(path)]) == 0
    assert "[bold]x" in capsys.readouterr().out


def test_the_demo_holds(capsys):
    assert run(["demo"]) == 0
    shown = capsys.readouterr().out
    assert "All of the above held." in shown
    assert "NO " not in shown


def test_the_installed_script_runs_and_a_closed_pipe_is_no_error():
    program = f"{sys.executable} -c 'import aoserial.cli as c; c.main()'"
    command = f"{program} inspect --json {CASE} | head -c 1"
    result = subprocess.run(
        ["bash", "-o", "pipefail", "-c", command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert "Traceback" not in result.stderr


def test_diff_tells_equal_from_different_and_an_error_from_both(path, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    state = aoserial.load(path)
    state["m.bias"] = torch.full((8,), 1.5)
    state["new"] = torch.ones(1)
    aoserial.save(state, other)
    assert run(["diff", str(path), str(path)]) == 0
    assert capsys.readouterr().out == "3 tensors equal, 0 different, 0 only in A, 0 only in B\n"
    assert run(["diff", str(path), str(other)]) == 1
    assert capsys.readouterr().out.splitlines() == [
        f"only in {other}: new",
        "m.bias: values: 8 of 8 differ, by at most 0.5 (relative 0.333)",
        "2 tensors equal, 1 different, 0 only in A, 1 only in B",
    ]
    assert run(["diff", str(path), str(tmp_path / "none")]) == 2


def test_diff_as_json_has_no_number_that_json_has_not(path, tmp_path, capsys):
    other = tmp_path / "other.safetensors"
    aoserial.save(aoserial.load(path) | {"m.bias": torch.full((8,), float("nan"))}, other)
    assert run(["diff", "--json", str(path), str(other)]) == 1
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told["differing"][0]["values"]["max_absolute"] == "inf"


def test_diff_of_a_migrated_file_says_that_the_values_are_the_same(tmp_path, capsys):
    aoserial.migrate(CASE, tmp_path / "new")
    assert run(["diff", str(CASE), str(tmp_path / "new")]) == 1
    shown = capsys.readouterr().out
    assert "0.weight: type: torchao.Float8Tensor@2 | aoserial.Float8Tensor@1" in shown
    assert "0.weight: the same values, bit for bit" in shown
