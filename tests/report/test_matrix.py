"""The grid of writers and readers: what readers do, whatever files do to them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tarfile
from importlib import metadata
from pathlib import Path

import pytest

from aoserial.cli.app import run
from aoserial.errors import FormatError, MissingFileError, OptionError
from aoserial.report import Matrix, markdown, page, read_all
from aoserial.report.environments import environment_with
from aoserial.report.files import File, find_files, release_key
from aoserial.report.matrix import Reader, Reading, Row
from aoserial.report.pool import Command, Pool
from aoserial.report.reader import _plain

FIXTURES = Path(__file__).parents[2] / "fixtures"
CASES = ("torchao-0.15.0/float8wo_v2", "torchao-0.17.0/nvfp4_config", "torchao-0.2.0/old_int8wo")
# a reader that answers as the name of the case asks: it dies of some files and hangs at others
STAND_IN = """
import json, os, signal, sys, time
print(json.dumps({"package": "stand-in", "version": "1", "torch": "2", "python": "3"}), flush=True)
for line in sys.stdin:
    case = json.loads(line)["path"].split("/")[-2]
    if case == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    if case == "exit":
        os._exit(3)
    if case == "hang":
        time.sleep(60)
    print(json.dumps({"outcome": "equal", "reason": ""}), flush=True)
"""


@pytest.fixture
def goldens(tmp_path) -> Path:
    folder = tmp_path / "goldens"
    for name in CASES:
        shutil.copytree(FIXTURES / name, folder / name)
    return folder


class StandIn(Command):
    """Runs the stand-in for a reader."""

    @property
    def words(self) -> list[str]:
        return [self.python, *self.options]


def stand_in(tmp_path: Path, text: str = STAND_IN) -> StandIn:
    script = tmp_path / "reader.py"
    script.write_text(text)
    return StandIn(python=sys.executable, options=(str(script),))


def test_this_checkout_reads_old_files_and_says_what_it_had_to_be_told(goldens):
    found = read_all([goldens], jobs=1)
    assert [reader.label for reader in found.readers] == ["this checkout"]
    rows = {row.case: row for row in found.rows}
    assert [row.writer for row in found.rows] == sorted(
        {name.split("/")[0] for name in CASES}, key=release_key
    )
    assert {row.readings[0].outcome for row in found.rows} == {"equal"}
    assert rows["nvfp4_config"].readings[0].told == "scale_product_dtype=bfloat16"
    assert rows["float8wo_v2"].readings[0].told == ""
    assert rows["float8wo_v2"].family == "aoserial.Float8Tensor"
    assert "torchao.Float8Tensor@2" in rows["float8wo_v2"].types
    assert found.findings() == []


def test_the_command_writes_page_figures_and_the_summary_of_a_job(
    goldens, tmp_path, monkeypatch, capsys
):
    (goldens / CASES[0] / "model.safetensors").write_bytes(b"not a checkpoint")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(tmp_path / "summary.md"))
    html, figures = tmp_path / "m.html", tmp_path / "m.json"
    arguments = ["golden", "report", str(goldens), "--html", str(html), "--json", str(figures)]
    assert run([*arguments, "--jobs", "1"]) == 1
    shown = capsys.readouterr().out
    assert "this checkout: 3 files: 2 equal, 1 refused" in shown
    assert "refused: torchao-0.15.0/float8wo_v2/model.safetensors: HeaderError" in shown
    told = json.loads(figures.read_text())
    assert [len(row["readings"]) for row in told["files"]] == [1, 1, 1]
    assert str(tmp_path) not in figures.read_text()  # no paths of this machine
    assert html.read_text().startswith("<!doctype html>")
    summary = (tmp_path / "summary.md").read_text()
    assert "| torchao\\-0.15.0 | 1 | 0 equal, 1 – refused |" in summary


def files(*names: str) -> list[File]:
    return [
        File(writer="w-1", case=name, path=Path(f"/nowhere/{name}/model.pt"), expected=Path("/x"))
        for name in names
    ]


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_crash_is_an_outcome_and_the_next_file_is_read(jobs, tmp_path):
    pool = Pool(stand_in(tmp_path), jobs, timeout=10)
    names = ("good", "segfault", "fine", "exit", "last")
    answers = dict(zip(names, pool.read(files(*names)), strict=True))
    assert [answers[name]["outcome"] for name in names] == [
        "equal", "crashed", "equal", "crashed", "equal",
    ]  # fmt: skip
    assert answers["segfault"]["reason"] == "killed by SIGSEGV"
    assert answers["exit"]["reason"] == "exit status 3"


def test_a_reader_that_hangs_has_crashed(tmp_path):
    answers = Pool(stand_in(tmp_path), 1, timeout=0.5).read(files("hang", "good"))
    assert answers[0] == {"outcome": "crashed", "reason": "no answer in 0.5 seconds"}
    assert answers[1]["outcome"] == "equal"


def test_a_reader_that_does_not_start_is_an_error_that_says_why(tmp_path):
    with pytest.raises(OptionError, match="does not start: SyntaxError"):
        Pool(stand_in(tmp_path, "this is no Python"), 1, timeout=5).read(files("good"))
    with pytest.raises(OptionError, match="does not start"):
        Pool(Command(python="/no/such/python"), 1, timeout=5).read(files("good"))


@pytest.mark.parametrize("text", ["numpy==2.0", "torchao", "torchao==0.1 --index-url x", "-e ."])
def test_a_reader_is_a_release_of_aoserial_or_torchao(text, goldens):
    with pytest.raises(OptionError, match="is not aoserial==VERSION or torchao==VERSION"):
        read_all([goldens], releases=[text])


def test_a_release_that_cannot_be_installed_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(OptionError, match="aoserial==0.0.0 cannot be installed: ERROR: No match"):
        environment_with("aoserial==0.0.0", tmp_path / "environment")


def test_torchao_gets_what_it_needs_to_be_at_its_best(tmp_path, monkeypatch):
    asked = []

    def done(words, **_):
        asked.append(words)
        return subprocess.CompletedProcess(words, 0, "", "")

    monkeypatch.setattr("aoserial.report.environments.subprocess.run", done)
    environment_with("torchao==0.17.0", tmp_path / "environment")
    here = metadata.version("torch").partition("+")[0]
    assert asked[-1][-4:] == ["torchao==0.17.0", "safetensors", "numpy", f"torch=={here}"]


def test_a_reason_is_what_the_reader_found_and_not_its_advice():
    told = (
        "UnpicklingError: Weights only load failed. You have two options, \x1b[1mdo them\x1b[0m.\n"
        "\tWeightsUnpickler error: Unsupported global: GLOBAL torchao.x.Y was not allowed."
    )
    assert _plain(told, "/a/model.pt") == (
        "UnpicklingError: Unsupported global: GLOBAL torchao.x.Y was not allowed."
    )
    assert _plain("ValueError: \x1b[1m/a/model.pt\x1b[0m is bad", "/a/model.pt") == (
        "ValueError: model.pt is bad"
    )
    assert len(_plain("x" * 10_000, "/a/model.pt")) < 700


def test_archives_are_unpacked_and_a_name_counts_once(goldens, tmp_path):
    with tarfile.open(tmp_path / "packed.tar.xz", "w:xz") as archive:
        archive.add(goldens, ".")
    found = find_files([tmp_path / "packed.tar.xz", goldens], tmp_path / "scratch")
    assert [file.writer for file in found] == ["torchao-0.2.0", "torchao-0.15.0", "torchao-0.17.0"]
    assert all((tmp_path / "scratch") in file.path.parents for file in found)


def test_a_place_without_goldens_is_an_error(tmp_path):
    with pytest.raises(MissingFileError, match="holds no golden file"):
        find_files([tmp_path], tmp_path / "scratch")
    with pytest.raises(MissingFileError, match="no such folder or archive"):
        find_files([tmp_path / "gone"], tmp_path / "scratch")
    (tmp_path / "text").write_text("text")
    with pytest.raises(FormatError, match="neither a folder nor a tar archive"):
        find_files([tmp_path / "text"], tmp_path / "scratch")


def test_markdown_takes_nothing_from_a_file_as_markup():
    reader = Reader(label="a|b", package="x", version="1", torch="2", python="3")
    bad = Reading(outcome="crashed", reason="<img src=x> [a](b)\n| new row |")
    rows = (Row(writer="w*-1", case="c", file="f", types=(), family="", readings=(bad,)),)
    text = markdown(Matrix(readers=(reader,), rows=rows))
    assert "\\<img src=x\\>" in text
    assert "\\[a\\]\\(b\\)\\\\n\\| new row \\|" in text
    assert "w\\*\\-1" in text


def test_the_page_closes_no_script_early():
    reader = Reader(label="x", package="x", version="1", torch="2", python="3")
    evil = "</script><script>document.title='taken'</script><!--&"
    reading = Reading(outcome="refused", reason=evil)
    row = Row(writer=evil, case=evil, file=evil, types=(evil,), family=evil, readings=(reading,))
    text = page(Matrix(readers=(reader,), rows=(row,)))
    assert evil not in text
    assert text.count("<script") == 2
    assert "\\u003c/script\\u003e" in text
