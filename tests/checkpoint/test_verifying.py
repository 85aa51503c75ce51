"""`verify`: every fault of a file with its place, and what could not be checked."""

from __future__ import annotations

import pytest
import torch
from support.cases import unpacked
from support.files import edit_envelope, split

import aoserial
from aoserial.errors import FieldError, IntegrityError, MissingFileError


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    aoserial.save({"m.weight": weight, "m.bias": torch.ones(8)}, path)
    return path


@pytest.mark.parametrize("deep", [False, True])
def test_a_file_as_it_was_written_is_clean(path, deep):
    verdict = aoserial.verify(path, deep=deep)
    assert verdict
    assert (verdict.faults, verdict.unverified) == ((), ())


def test_every_damaged_tensor_is_named(path):
    whole = bytearray(path.read_bytes())
    header, data = split(path)
    start = len(whole) - len(data)
    for key in ("m._weight_scale", "m.bias"):
        whole[start + header[key]["data_offsets"][0]] ^= 1
    path.write_bytes(whole)
    assert aoserial.verify(path)  # the structure is right
    verdict = aoserial.verify(path, deep=True)
    assert not verdict
    assert {fault.location.name for fault in verdict.faults} == {"m._weight_scale", "m.bias"}
    assert all(isinstance(fault, IntegrityError) for fault in verdict.faults)


def test_records_that_would_not_load_are_faults(path):
    edit_envelope(path, lambda e: e["records"][0]["attributes"].update(block_size=[1, 5]))
    (fault,) = aoserial.verify(path).faults
    assert isinstance(fault, FieldError)
    assert (fault.location.file, fault.location.field) == (str(path), "scale")


def test_values_that_a_type_does_not_allow_are_faults_when_every_byte_is_read(tmp_path):
    path = tmp_path / "file"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    weight.scale[3, 0] = float("nan")
    weight.scale[5, 0] = float("inf")
    aoserial.save({"m.weight": weight}, path)
    assert aoserial.verify(path)
    (fault,) = aoserial.verify(path, deep=True).faults
    assert isinstance(fault, FieldError)
    assert (fault.location.name, fault.location.field) == ("m.weight", "scale")
    assert fault.message == "2 of 8 values are infinite or NaN, the first at 3"


@pytest.mark.parametrize("bit_width", [8, 4, 1])
def test_codes_outside_their_bit_width_are_faults_when_every_byte_is_read(tmp_path, bit_width):
    codes = torch.arange(-64, 64, dtype=torch.int8).repeat(2).view(2, 128)
    codes[0, 0], codes[1, 127] = -128, 127
    weight = aoserial.IntxTensor(
        codes, torch.ones(2, 1), bit_width, (1, 128), aoserial.ZeroDomain.none, shape=(2, 128)
    )
    aoserial.save({"m.weight": weight}, tmp_path / "file")
    faults = aoserial.verify(tmp_path / "file", deep=True).faults
    assert bool(faults) == (bit_width < 8)
    outside = int(((codes < -(2 ** (bit_width - 1))) | (codes > 2 ** (bit_width - 1) - 1)).sum())
    if faults:
        assert faults[0].message.startswith(f"{outside} of 256 values are not from")


def test_what_carries_no_digest_is_reported_and_not_called_verified(tmp_path):
    from safetensors.torch import save_file

    save_file({"x": torch.ones(1)}, tmp_path / "plain")
    verdict = aoserial.verify(tmp_path / "plain", deep=True)
    assert verdict
    assert len(verdict.unverified) == 2


def test_a_file_that_cannot_be_read_at_all_is_a_fault_and_a_missing_one_an_error(path):
    path.write_bytes(b"<html>")
    assert not aoserial.verify(path)
    with pytest.raises(MissingFileError):
        aoserial.verify(path.with_name("none"))


def test_no_fault_hides_another(tmp_path):
    """A damaged header, a lost part, a wrong field, a changed byte, a scale and a truth value."""
    path = tmp_path / "file"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    broken = aoserial.Int8Tensor.from_float(torch.randn(8, 32))
    broken.scale[2, 0] = float("nan")
    state = {
        "changed.weight": weight,
        "lost.weight": aoserial.Float8Tensor.from_float(torch.randn(8, 16)),
        "wrong.weight": aoserial.IntxTensor.from_float(torch.randn(8, 16), bit_width=4),
        "values.weight": broken,
        "flags": torch.ones(3, dtype=torch.bool),
    }
    aoserial.save(state, path)
    whole = path.read_bytes()
    header, data = split(path)
    start = len(whole) - len(data)
    raw = bytearray(whole)
    raw[start + header["changed._weight_qdata"]["data_offsets"][0]] ^= 1
    raw[start + header["flags"]["data_offsets"][0]] = 2
    raw = raw.replace(b'"lost._weight_scale"', b'"lost._weight_scold"')
    raw = raw.replace(rb"\"bit_width\":4", rb"\"bit_width\":9")
    path.write_bytes(raw)
    faults = aoserial.verify(path, deep=True).faults
    told = {(fault.location.name, fault.location.field): fault.message for fault in faults}
    assert "does not match its own digest" in told[None, None]
    assert "file has no 'lost._weight_scale'" in told["lost.weight", "scale"]
    assert "CRC-32" in told["changed._weight_qdata", None]
    assert "has codes of 9 bits" in told["wrong.weight", "qdata"]
    assert "infinite or NaN" in told["values.weight", "scale"]
    assert any("bool" in fault.message for fault in faults if fault.location.name == "flags")
    assert {fault.location.file for fault in faults} == {str(path)}


def test_an_answer_to_what_the_file_cannot_tell_is_taken():
    path = unpacked() / "torchao-0.7.0/int4wo_cpu/model.pt"
    assert not aoserial.verify(path)
    assert aoserial.verify(path, deep=True, assume={"int4_cpu_isa": "avx512"})
