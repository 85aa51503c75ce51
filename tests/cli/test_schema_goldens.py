"""`aoserial schema check` in a project that keeps goldens: it looks at them without being asked."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aoserial.golden.settings import settings_of
from aoserial.golden.showing import goldens_in, goldens_of

ROOT = Path(__file__).parents[2]
COMMAND = "import sys; from aoserial.cli import main; main()"


@pytest.fixture
def acme(tmp_path):
    """The example project; its version 1 is shown by goldens of three releases."""
    return shutil.copytree(ROOT / "examples/acme", tmp_path / "acme")


def check(folder: Path, *arguments: str) -> tuple[int, list[tuple[str, str]], list[str]]:
    """Exit status, rules with their subjects, and what was not checked."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", COMMAND, "schema", "check", "--format", "json",
         "--module", "acme", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )  # fmt: skip
    assert done.stdout, done.stderr
    told = json.loads(done.stdout)
    rules = [(one["rule"], one["subject"]) for one in told["findings"]]
    return done.returncode, rules, told["unchecked"]


def forget(folder: Path, writer: str) -> None:
    """Takes the goldens of a release away, and out of the manifest."""
    shutil.rmtree(folder / "goldens" / writer)
    path = folder / "goldens/MANIFEST.json"
    told = json.loads(path.read_text())
    told["files"] = {n: row for n, row in told["files"].items() if not n.startswith(writer)}
    path.write_text(json.dumps(told))


def test_an_older_version_that_no_golden_shows_is_found_unless_it_is_said_why(acme):
    for writer in ("acme-1.0", "acme-1.1", "acme-1.2"):
        forget(acme, writer)
    assert check(acme) == (1, [("GOLDEN_MISSING", "acme.Int4Tensor@1")], [])
    with (acme / "pyproject.toml").open("a") as file:
        file.write('[tool.aoserial.unseen]\n"acme.Int4Tensor@1" = "lost in a flood"\n')
    assert check(acme) == (0, [], ["golden of acme.Int4Tensor@1: lost in a flood"])


def test_each_golden_file_that_is_not_as_it_was_is_a_finding(acme):
    goldens = acme / "goldens"
    edited = goldens / "acme-1.0/int4_linear/model.safetensors"
    data = bytearray(edited.read_bytes())
    data[-1] ^= 1
    edited.write_bytes(data)
    (goldens / "acme-1.2/int4_linear/golden.json").write_text("[]")
    (goldens / "acme-2.0/int4_linear/expected.safetensors").unlink()
    wrong = [
        ("GOLDEN_EDITED", "goldens/acme-1.0/int4_linear/model.safetensors"),
        ("GOLDEN_EDITED", "goldens/acme-1.2/int4_linear/golden.json"),
        ("GOLDEN_EDITED", "goldens/acme-2.0/int4_linear/expected.safetensors"),
    ]
    status, found, _ = check(acme)
    assert (status, [one for one in found if one[0] == "GOLDEN_EDITED"]) == (1, wrong)
    assert [fault.rule for fault in goldens_in(goldens).faults] == ["GOLDEN_EDITED"] * 3


@pytest.mark.parametrize("text", [None, "{", "[]", "{}", '{"files": 1}', '{"files": {"x": {}}}'])
def test_a_manifest_that_cannot_be_read_is_one_finding(text, acme):
    path = acme / "goldens/MANIFEST.json"
    path.unlink() if text is None else path.write_text(text)
    (fault,) = goldens_of(settings_of(acme)).faults
    assert (fault.rule, fault.subject) == ("GOLDEN_EDITED", "goldens/MANIFEST.json")


def test_a_project_that_has_recorded_nothing_yet_shows_nothing_and_has_no_faults(acme):
    shutil.rmtree(acme / "goldens")
    found = goldens_of(settings_of(acme))
    assert (found.shown, found.faults) == (set(), ())
