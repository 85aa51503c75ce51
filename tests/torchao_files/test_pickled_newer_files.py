"""Every pickle of a real torchao release with a float8, int8, int4, intx, MX or NVFP4 weight of its
own class: it loads, and stands for the values that the release had for it.

The files are those in fixtures/ that have a model.pt, and any AOSERIAL_FIXTURES names.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.cases import case_id, described, pickled_cases
from support.tensors import same_bytes

import aoserial
from aoserial.torchao import float8, int4, integers, mx, nvfp4, opaque

PATHS = {
    path
    for family in (float8, int4, integers, mx, nvfp4, opaque)
    for row in family.CLASSES
    for path in row.paths
}
# no release dequantizes them on a CPU either
INERT = {path for row in opaque.CLASSES for path in row.paths}


def cases() -> Iterator[Path]:
    for case in pickled_cases():
        if any(told["class"] in PATHS for told in described(case)["keys"].values()):
            yield case


@pytest.fixture(params=list(cases()), ids=case_id)
def case(request) -> Path:
    return request.param


def assume_for(case: Path) -> dict[str, str]:
    """What has to be said of files that do not tell it."""
    told = described(case)
    answers = {}
    if told["torchao"] in ("0.16.0", "0.17.0") and "nvfp4" in case.name:
        answers["scale_product_dtype"] = "bfloat16"
    if "opaque" in case.name:
        answers["int4_cpu_isa"] = told["cpu_capability"].lower()
    return answers


def test_the_dequantized_values_are_torchaos_bit_for_bit(case):
    expected = torch.load(case / "expected.pt", weights_only=True)["dequantized"]
    state = aoserial.load(case / "model.pt", assume=assume_for(case), strict=False)
    for name, told in described(case)["keys"].items():
        if told["class"] not in PATHS:
            continue
        if told["class"] in INERT:
            assert isinstance(state[name], aoserial.InertTensor)
            assert name not in expected
        else:
            assert same_bytes(state[name].dequantize(), expected[name])


def test_a_migrated_file_stands_for_the_same_values(case, tmp_path):
    new = tmp_path / "model.safetensors"
    assume = assume_for(case)
    aoserial.migrate(case / "model.pt", new, assume=assume, allow_lossy=True)
    before = aoserial.load(case / "model.pt", assume=assume, strict=False)
    after = aoserial.load(new, strict=False)
    for name, tensor in before.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(tensor.dequantize(), after[name].dequantize())
