"""Goldens of a version that the work tree's code writes no more: by the code of a commit."""

import shutil
import subprocess
from pathlib import Path

import pytest

from aoserial.errors import OptionError, SchemaError
from aoserial.golden import Store, find_settings
from aoserial.golden.old_code import holds, record_at

ACME = Path(__file__).parents[2] / "examples/acme"


@pytest.fixture
def settings(tmp_path):
    """acme's repository without goldens, with an edit of its class that was not committed."""
    root = tmp_path / "acme"
    shutil.copytree(ACME, root, ignore=shutil.ignore_patterns("goldens", "__pycache__"))
    who = ["-c", "user.name=acme", "-c", "user.email=acme@example.com"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "2.0"]):
        subprocess.run(["git", *who, *command], cwd=root, check=True)
    (root / "acme/__init__.py").write_text("raise RuntimeError('the edited code was run')")
    found = find_settings(root)
    assert found is not None
    return found


def test_goldens_are_recorded_by_the_code_of_the_commit_and_brought_home(settings):
    version = ("acme.Int4Tensor", 2)
    assert not holds(settings, version)
    folders = record_at(settings, "HEAD", version)
    assert [folder.name for folder in folders] == ["int4_linear", "int4_zero_point"]
    assert holds(settings, version)
    assert not list(Store(settings.goldens).check())


def test_a_version_that_no_case_writes_and_a_commit_that_is_not_there_are_errors(settings):
    with pytest.raises(SchemaError, match="no golden case of HEAD writes acme.Int4Tensor@7"):
        record_at(settings, "HEAD", ("acme.Int4Tensor", 7))
    with pytest.raises(OptionError):
        record_at(settings, "no-such-ref", ("acme.Int4Tensor", 2))
    assert not settings.goldens.exists()
