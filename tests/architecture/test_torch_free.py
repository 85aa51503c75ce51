"""Importing torch takes seconds, so what needs no torch must not import it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support import containers, pickle_assembler as asm

from aoserial.checkpoint.archives.safetensors import TORCHAO_NAMES_KEY
from aoserial.storage.safetensors import write_safetensors
from aoserial.torchao.layout import NAMES_KEY

CASE = Path(__file__).parents[2] / "fixtures/torchao-0.15.0/float8wo_v2/model.safetensors"
HEAVY = ("torch", "numpy", "safetensors")


def heavy_modules_after(code: str) -> str:
    """Runs `code` in a process of its own and returns which heavy packages it loaded."""
    report = f"import sys; print('loaded', [name for name in {HEAVY!r} if name in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", f"{code}\n{report}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


@pytest.mark.parametrize(
    "code",
    [
        "import aoserial",
        "import aoserial.errors, aoserial.schema.builtin, aoserial.record, aoserial.migrations",
        "import aoserial.storage, aoserial.storage.safetensors",
        "import aoserial.torchao, aoserial.checkpoint",
        f"import aoserial; aoserial.inspect({str(CASE)!r})",
        f"import aoserial; aoserial.plan({str(CASE)!r})",
        f"import aoserial; aoserial.verify({str(CASE)!r})",
        f"from aoserial.cli.app import run; run(['inspect', {str(CASE)!r}])",
        f"from aoserial.cli.app import run; run(['migrate', '--dry-run', {str(CASE)!r}])",
        f"from aoserial.cli.app import run; run(['verify', {str(CASE)!r}])",
        f"import os; from aoserial.cli.app import run; run(['diff', {str(CASE)!r}, os.devnull])",
        "from aoserial.cli.app import run; run(['history'])",
        "from aoserial.cli.app import run; run(['history', 'torchao.AffineQuantizedTensor'])",
        "from aoserial.cli.app import run; run(['--help'])",
        "from aoserial.cli.app import run; assert not run(['schema', 'check'])",
        "from aoserial.cli.app import run; run(['schema', 'check', '--against', 'HEAD'])",
        "from aoserial.cli.app import run; assert not run(['schema', 'list'])",
        "from aoserial.cli import app; assert not app.run('schema show torchao.MXTensor'.split())",
        "import aoserial.pytest_plugin",
        "import aoserial.golden.suite, aoserial.report",
        "import pytest; pytest.main(['--co', '-q', 'tests/architecture/test_fixtures.py'])",
    ],
)
def test_this_loads_no_torch(code):
    assert heavy_modules_after(code) == "loaded []"


@pytest.mark.parametrize(
    "wrap",
    [containers.zipped, lambda body: containers.legacy(body, {"0": (4, containers.FLOATS)})],
    ids=["zip", "legacy"],
)
@pytest.mark.parametrize(
    "code",
    [
        "import aoserial; assert aoserial.inspect({!r}).count == 1",
        "import aoserial; aoserial.plan({!r})",
        "import aoserial; assert aoserial.verify({!r}, deep=True)",
        "from aoserial.cli.app import run; assert not run(['inspect', {!r}])",
        "from aoserial.cli.app import run; assert not run(['scan', {!r}])",
    ],
)
def test_nor_does_this_for_a_pickle(code, wrap, tmp_path):
    path = tmp_path / "model.pt"
    path.write_bytes(wrap(asm.stream(asm.dict_(asm.text("w"), asm.tensor()))))
    assert heavy_modules_after(code.format(str(path))) == "loaded []"


def test_a_file_of_ours_is_inspected_without_the_tables_of_torchao(tmp_path):
    write_safetensors(tmp_path / "x.safetensors", {}, metadata={"format": "pt"})
    code = f"import aoserial; aoserial.inspect({str(tmp_path / 'x.safetensors')!r})"
    report = f"{code}\nimport sys; print('aoserial.torchao' in sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", report], capture_output=True, text=True, check=True
    )
    assert told.stdout == "False\n"
    assert TORCHAO_NAMES_KEY == NAMES_KEY


def test_the_first_name_that_needs_torch_loads_it():
    assert "torch" in heavy_modules_after("import aoserial; aoserial.VersionedTensor")
