"""The example project, run as its owner would: recorded release by release, verified, broken."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/acme"
OLDER = ("1.0", "1.1", "1.2")
MIGRATION = '@aoserial.migration("acme.Int4Tensor", 1, 2'


def run(project: Path, *arguments: str) -> tuple[int, str]:
    """Runs Python in a copy of the project; exit status and what it printed."""
    result = subprocess.run(
        [sys.executable, "-B", *arguments],
        cwd=project,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def pytest_in(project: Path, *arguments: str) -> tuple[int, str]:
    # the plugin by name: it need not be installed for this test
    plugin = ("-p", "aoserial.pytest_plugin", "-p", "no:cacheprovider")
    return run(project, "-m", "pytest", "-q", *plugin, *arguments)


def aoserial_in(project: Path, *arguments: str) -> tuple[int, str]:
    return run(project, "-c", "from aoserial.cli import main; main()", *arguments)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.fixture
def project(tmp_path) -> Path:
    return Path(shutil.copytree(EXAMPLE, tmp_path / "acme"))


def test_every_release_records_what_it_writes_anew_and_the_goldens_are_those(project):
    shutil.rmtree(project / "goldens")
    for release in (*OLDER, "2.0"):
        source = project / "releases" / release if release in OLDER else EXAMPLE
        for name in ("acme/__init__.py", "tests/golden_cases.py"):
            shutil.copyfile(source / name, project / name)
        pyproject = (EXAMPLE / "pyproject.toml").read_text()
        (project / "pyproject.toml").write_text(
            pyproject.replace('version = "2.0"', f'version = "{release}"')
        )
        status, told = pytest_in(project, "--aoserial-record")
        assert status == 1, told  # it recorded something, so somebody has to look
        assert f"recorded acme-{release}/" in told
    assert recorded(project) == recorded(EXAMPLE)


def recorded(project: Path) -> dict[str, object]:
    """All goldens by name: what they hold, and the bytes of their values."""
    found: dict[str, object] = {}
    for path in sorted(project.glob("goldens/*/*/*")):
        name = str(path.relative_to(project))
        if path.name == "golden.json":
            told = json.loads(path.read_text())
            found[name] = {**told, "environment": None}
        elif path.suffix == ".safetensors":  # archives name the release of torch that wrote them
            found[name] = path.read_bytes()
        else:
            found[name] = ""
    return found


def test_it_reads_all_its_goldens_bit_for_bit(project):
    status, told = pytest_in(project, "-rA", "-m", "aoserial_golden")
    assert status == 0, told
    for golden in ("int4_linear[acme-1.0]", "int4_zero_point[acme-1.1]", "int4_linear[acme-2.0]"):
        assert f"PASSED tests/golden_cases.py::{golden}" in told
    assert "11 passed" in told


def test_whatever_is_broken_is_named(project):
    code = project / "acme/__init__.py"
    edit(code, "[self.qdata >> 4, self.qdata & 15]", "[self.qdata & 15, self.qdata >> 4]")
    edit(project / "tests/golden_cases.py", "def int4_zero_point", "def int4_anything")
    golden = project / "goldens/acme-1.2/int4_linear/model.safetensors"
    data = bytearray(golden.read_bytes())
    data[-1] ^= 1
    golden.write_bytes(data)
    (project / "goldens/acme-1.2/int4_linear/notes.txt").write_text("by hand")
    shutil.rmtree(project / "goldens/acme-2.0/int4_linear")
    shutil.copytree(project / "schemas/acme.Int4Tensor", project / "schemas/acme.Int8Tensor")
    status, told = aoserial_in(project, "golden", "verify")
    assert status == 1
    for finding in (
        "GOLDEN_VALUES_DIFFER: acme-1.0/int4_linear: model.safetensors: value weight: ",
        "GOLDEN_OUTPUTS_DIFFER: acme-1.0/int4_linear: model.safetensors: output 0: ",
        "GOLDEN_EDITED: acme-1.2/int4_linear/model.safetensors: has SHA-256 ",
        "GOLDEN_UNLISTED: acme-1.2/int4_linear/notes.txt: ",
        "GOLDEN_EDITED: acme-2.0/int4_linear/model.safetensors: is in MANIFEST.json and not on ",
        "GOLDEN_MISSING: int4_linear: writes acme.Int4Tensor@2, of which it has no golden: run ",
        "GOLDEN_MISSING: int4_anything: ",
        "GOLDEN_UNUSED: acme-1.1/int4_zero_point: ",
        "GOLDEN_MISSING: acme.Int8Tensor@1: ",
    ):
        assert finding in told
    assert "Traceback" not in told


def test_an_old_golden_without_its_migration_or_a_changed_class_fails(project):
    code = project / "acme/__init__.py"
    edit(code, MIGRATION, '@aoserial.migration("acme.Other", 1, 2')
    edit(code, "    group_size: int\n", "    group_size: int\n    bits: int = 4\n")
    edit(project / "tests/golden_cases.py", '{"gain": 1.0', '{"bits": 3, "gain": 1.0')
    status, told = pytest_in(project)
    assert status == 1
    assert "GOLDEN_UNREADABLE: acme-1.0/int4_linear: " in told
    assert "GOLDEN_SHAPE_CHANGED: int4_linear: " in told
    assert "int4_linear[acme-2.0]" not in told  # which did not fail
