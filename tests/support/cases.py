"""The golden cases of torchao's releases: those in fixtures/, loose and packed, and any that
AOSERIAL_FIXTURES names. A case is a folder `torchao-<release>/<name>`; each is given once."""

from __future__ import annotations

import atexit
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"
PACKED = FIXTURES / "torchao.tar.xz"


@cache
def unpacked() -> Path:
    """A folder, of this process alone, with the cases of the archive."""
    folder = Path(tempfile.mkdtemp(prefix="aoserial-fixtures-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    with tarfile.open(PACKED) as archive:
        archive.extractall(folder, filter="data")
    return folder


def roots() -> list[Path]:
    """The folders that hold cases; what the first ones have, the later ones are not asked for."""
    more = os.environ.get("AOSERIAL_FIXTURES")
    packed = [unpacked()] if PACKED.exists() else []
    return [FIXTURES, *packed, *([Path(more)] if more else [])]


@cache
def all_cases() -> tuple[Path, ...]:
    """The folders of all cases."""
    found: dict[tuple[str, str], Path] = {}
    for root in roots():
        for told in sorted(root.glob("torchao-*/*/case.json")):
            case = told.parent
            found.setdefault((case.parent.name, case.name), case)
    return tuple(found.values())


def safetensors_cases() -> Iterator[Path]:
    """The folders of cases that have a model.safetensors."""
    return (case for case in all_cases() if (case / "model.safetensors").exists())


def pickled_cases(*names: str) -> Iterator[Path]:
    """The folders of cases that have a model.pt; only those of the names, if any is given."""
    for case in all_cases():
        if (not names or case.name in names) and (case / "model.pt").exists():
            yield case


def all_files() -> Iterator[Path]:
    """Every model.pt and model.safetensors."""
    for case in all_cases():
        for path in (case / "model.pt", case / "model.safetensors"):
            if path.exists():
                yield path


def case_id(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def file_id(path: Path) -> str:
    return f"{case_id(path.parent)}{path.suffix}"


def described(case: Path) -> dict:
    """What case.json says."""
    return json.loads((case / "case.json").read_text())
