"""`aoserial schema`, on this repository, and on a team's module in a repository of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from aoserial.cli.app import run

ROOT = Path(__file__).parents[2]
ACME = '''
import enum
import torch
import aoserial

@aoserial.register("acme.Domain")
class Domain(enum.Enum):
    INT = 1
    FLOAT = 2

@aoserial.register("acme.Int4Tensor", version={version}, schemas="schemas")
class Int4Tensor(aoserial.VersionedTensor):
    """Codes."""

    qdata: torch.Tensor
    scale: torch.Tensor
    domain: Domain
    gain: float = 1.0
{fields}
'''


def test_this_repository_is_clean_and_its_goldens_were_looked_at(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    assert run(["schema", "check"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[-1].endswith("documents: clean")
    assert not any(line.startswith("not checked: goldens") for line in told)
    assert any(line.startswith("not checked: golden of torchao.AffineQ") for line in told)


def test_goldens_of_another_project_say_nothing_of_these_types(capsys, monkeypatch):
    monkeypatch.chdir(ROOT / "examples/acme")
    assert run(["schema", "check"]) == 0
    assert "not checked: goldens: no folder of them was given for" in capsys.readouterr().out


def test_a_golden_folder_is_taken_with_what_its_manifest_lists(capsys):
    run(["schema", "check", "--goldens", str(ROOT / "fixtures"), "--format", "json"])
    found = json.loads(capsys.readouterr().out)["findings"]
    assert [(one["rule"], one["subject"]) for one in found] == [
        ("GOLDEN_MISSING", "torchao.AffineQuantizedTensor@1")
    ]


def test_types_and_enums_are_listed_with_what_is_frozen_of_them(capsys):
    assert run(["schema", "list", "--json"]) == 0
    rows = {row["type"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["torchao.MXTensor"]["frozen"] == "1, 2, 3, 4"
    assert rows["aoserial.ZeroDomain"] == {
        "type": "aoserial.ZeroDomain",
        "kind": "enum",
        "head": "-",
        "frozen": "yes",
    }
    assert run(["schema", "list"]) == 0
    assert capsys.readouterr().out.startswith("type")


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("aoserial.Int4Tensor", "aoserial.Int4Tensor/1.json"),
        ("torchao.MXTensor@2", "torchao.MXTensor/2.json"),
        ("aoserial.ZeroDomain", "aoserial.ZeroDomain/enum.json"),
    ],
)
def test_a_document_is_shown_as_it_lies_in_its_file(name, path, capsys):
    assert run(["schema", "show", name]) == 0
    assert capsys.readouterr().out == (ROOT / "schemas" / path).read_text()


@pytest.mark.parametrize(
    "arguments",
    [
        ["show", "acme.Absent"],
        ["show", "aoserial.Int4Tensor@9"],
        ["show", "aoserial.Int4Tensor@x"],
        ["freeze"],
        ["freeze", "--all", "acme.T"],
        ["freeze", "acme.Absent"],
        ["draft", "acme.Absent"],
        ["draft", "aoserial.Int4Tensor"],
        ["check", "--goldens", "/nowhere"],
        ["check", "--mode", "sideways"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_done_is_told_in_a_sentence(arguments, capsys):
    assert run(["schema", *arguments]) == 2
    told = capsys.readouterr()
    assert told.err.startswith("aoserial: ")
    assert "Traceback" not in told.err


def test_a_commit_that_is_not_there_is_an_error_and_a_finding(capsys):
    assert run(["schema", "check", "--against", "no-such-ref", "--format", "json"]) == 2
    found = json.loads(capsys.readouterr().out)
    assert [one["rule"] for one in found["findings"]] == ["BASELINE_NOT_FOUND"]


def test_a_module_that_does_not_import_is_an_error_and_the_rest_is_checked(capsys):
    assert run(["schema", "check", "--module", "acme_absent", "--module", "acme_gone"]) == 2
    told = capsys.readouterr().out
    assert told.count("MODULE_NOT_IMPORTABLE") == 2


@pytest.fixture
def acme(tmp_path):
    """A repository whose first commit has acme's first release."""
    (tmp_path / "acme").mkdir()
    (tmp_path / "acme/__init__.py").write_text("")
    write(tmp_path, version=1)
    git(tmp_path, "init", "-q")
    assert schema(tmp_path, "freeze", "--all").returncode == 0
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "first")
    return tmp_path


def write(folder, *, version, fields=""):
    (folder / "acme/tensors.py").write_text(ACME.format(version=version, fields=fields))


def schema(folder, verb, *arguments):
    """`aoserial schema` in a process of its own, on acme's module."""
    command = "import sys; from aoserial.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", command, "schema", verb, *arguments, "--module", "acme.tensors"],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )


def git(folder, *arguments):
    who = ["-c", "user.name=x", "-c", "user.email=x@example.com"]
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


def test_a_team_goes_from_a_breaking_edit_to_its_next_version(acme):
    done = schema(acme, "check", "--against", "HEAD", "--mode", "full")
    assert done.returncode == 0, done.stdout + done.stderr

    write(acme, version=1, fields="    axis: int")
    done = schema(acme, "check", "--format", "github")
    assert done.returncode == 1, done.stderr
    (line,) = [row for row in done.stdout.splitlines() if row.startswith("::error")]
    assert line.startswith("::error file=schemas/acme.Int4Tensor/1.json,title=FIELD_ADDED_REQUIRED")
    assert "witness" in line

    done = schema(acme, "draft", "acme.Int4Tensor")
    assert done.returncode == 0, done.stderr
    assert "written: schemas/acme.Int4Tensor/2.json" in done.stdout
    assert "say version=2 where acme.Int4Tensor is registered" in done.stdout
    step = acme / "acme/int4_tensor_from_1.py"
    assert step.exists()

    write(acme, version=2, fields="    axis: int\n\nfrom acme import int4_tensor_from_1")
    done = schema(acme, "check")
    assert done.returncode == 1
    assert "STEP_UNFINISHED" in done.stdout

    text = step.read_text()
    head = text[: text.index("    raise NotImplementedError")]
    step.write_text(head + "    return record.at(2).set(axis=0)\n")
    done = schema(acme, "check", "--against", "HEAD")
    assert done.returncode == 0, done.stdout + done.stderr
    assert schema(acme, "check", "--against", "HEAD", "--mode", "write").returncode == 1
