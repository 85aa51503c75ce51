"""Every golden case is read as its manifest says, and any other case is read, or stays inert.

Equal means bit for bit: each tensor's `dequantize()` against what the release that wrote the file
had for it, each plain tensor against itself.
"""

from __future__ import annotations

import hashlib
import json

import pytest
from support.cases import FIXTURES, all_cases, all_files, case_id, file_id
from support.outcomes import answers, outcome
from torchao_files.pack import expected

import aoserial
from aoserial.errors import EraError

MANIFEST = json.loads((FIXTURES / "MANIFEST.json").read_text())["cases"]
CASES = {f"{case.parent.name}/{case.name}": case for case in all_cases()}


def test_no_golden_case_is_missing():
    assert MANIFEST.keys() <= CASES.keys()


@pytest.mark.parametrize("name", MANIFEST)
def test_a_golden_case_is_what_its_release_wrote(name):
    told = MANIFEST[name]
    assert told["writer"] == f"torchao {name.partition('/')[0].removeprefix('torchao-')}"
    for file, digest in told["sha256"].items():
        assert hashlib.sha256((CASES[name] / file).read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("path", list(all_files()), ids=file_id)
def test_a_file_becomes_what_it_should(path):
    found = outcome(path)
    assert found.verdict in ("equal", "inert"), found
    told = MANIFEST.get(f"{path.parent.parent.name}/{path.parent.name}")
    if told is not None:
        assert expected(path, found) == told["expected"][path.name]


def refused() -> list[tuple[str, str]]:
    """Name and file of the golden cases that have to be told the machine that packed them."""
    return [
        (name, file)
        for name, told in MANIFEST.items()
        for file, says in told["expected"].items()
        if "int4_cpu_isa" in says.get("assume", {})
    ]


@pytest.mark.parametrize(("name", "file"), refused())
def test_what_a_file_does_not_tell_is_asked_for_and_never_guessed(name, file):
    with pytest.raises(EraError, match="int4_cpu_isa"):
        aoserial.load(CASES[name] / file)
    right = answers(CASES[name])["int4_cpu_isa"]
    assert aoserial.load(CASES[name] / file, assume={"int4_cpu_isa": right})


def test_there_is_a_golden_case_of_every_release_at_hand_and_of_each_machine():
    writers = {told["writer"].removeprefix("torchao ") for told in MANIFEST.values()}
    assert len(writers) == 16
    assert {case_id(CASES[name]).rpartition("_")[2] for name, _ in refused()} >= {"avx2", "default"}
