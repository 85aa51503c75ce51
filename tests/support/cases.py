"""The golden cases of torchao's releases: those in fixtures/, and any AOSERIAL_FIXTURES names."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

FIXTURES = Path(__file__).parents[2] / "fixtures"


def safetensors_cases() -> Iterator[Path]:
    """The folders of cases that have a model.safetensors."""
    more = os.environ.get("AOSERIAL_FIXTURES")
    for root in (FIXTURES, Path(more)) if more else (FIXTURES,):
        for path in sorted(root.glob("torchao-*/*/model.safetensors")):
            yield path.parent


def pickled_cases(*names: str) -> Iterator[Path]:
    """The folders of cases with one of these names that have a model.pt."""
    more = os.environ.get("AOSERIAL_FIXTURES")
    for root in (FIXTURES, Path(more)) if more else (FIXTURES,):
        for path in sorted(root.glob("torchao-*/*/model.pt")):
            if path.parent.name in names:
                yield path.parent


def all_files() -> Iterator[Path]:
    """Every model.safetensors and model.pt."""
    more = os.environ.get("AOSERIAL_FIXTURES")
    for root in (FIXTURES, Path(more)) if more else (FIXTURES,):
        for suffix in ("safetensors", "pt"):
            yield from sorted(root.glob(f"torchao-*/*/model.{suffix}"))


def case_id(path: Path) -> str:
    return f"{path.parent.name}-{path.name}"


def described(case: Path) -> dict:
    """What case.json says."""
    return json.loads((case / "case.json").read_text())
