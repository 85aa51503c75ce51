"""Files that are broken, foreign or hostile: one clear error of ours, the file left alone."""

from __future__ import annotations

import gzip
import os
import struct
import zipfile

import pytest
import torch
from support.files import join, split

import aoserial
from aoserial.errors import AoserialError, IntegrityError, MissingFileError, PathError

READERS = [aoserial.inspect, aoserial.plan, aoserial.load, aoserial.open]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "model.safetensors"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    aoserial.save({"m.weight": weight, "m.bias": torch.ones(8)}, path)
    return path


def refused(reader, path, match):
    before = path.read_bytes()
    with pytest.raises(AoserialError, match=match) as caught:
        reader(path)
    assert isinstance(caught.value, ValueError)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
@pytest.mark.parametrize(
    ("content", "looks_like"),
    [
        (b"", "empty"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 12\n", "[Ll][Ff][Ss]"),
        (b"<!DOCTYPE html>\n<html><head><title>404</title></head></html>", "HTML"),
        (b'{"error": "not found"}', "JSON"),
        (gzip.compress(b"x" * 100), "gzip"),
        (b"\x80\x02}q\x00.", "pickle"),
        (b"GGUF\x03\0\0\0" + b"\0" * 40, "GGUF"),
        (b"\0" * 4096, "zero"),
    ],
    ids=["empty", "git-lfs", "html", "json", "gzip", "pickle", "gguf", "zeros"],
)
def test_what_is_no_safetensors_file_is_refused_with_what_it_looks_like(
    tmp_path, reader, content, looks_like
):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    refused(reader, path, looks_like)


def test_a_zip_archive_is_recognised_as_a_torch_save_file(tmp_path):
    path = tmp_path / "model.safetensors"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", b"x")
    refused(aoserial.load, path, "zip")


@pytest.mark.parametrize("reader", READERS, ids=lambda f: f.__name__)
def test_a_file_that_is_not_there_is_a_file_not_found_error(tmp_path, reader):
    with pytest.raises(FileNotFoundError) as caught:
        reader(tmp_path / "none.safetensors")
    assert isinstance(caught.value, MissingFileError)


def test_a_folder_a_fifo_and_a_device_are_refused_at_once(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (tmp_path, fifo, "/dev/zero"):
        with pytest.raises(PathError):
            aoserial.load(path)


def test_a_file_cut_anywhere_is_refused(path):
    whole = path.read_bytes()
    for length in [*range(64), *range(64, len(whole), 97), len(whole) - 1]:
        path.write_bytes(whole[:length])
        with pytest.raises(AoserialError):
            aoserial.load(path)


def test_bytes_after_the_end_are_refused(path):
    path.write_bytes(path.read_bytes() + b"\0")
    refused(aoserial.load, path, "byte")


def test_any_flipped_bit_of_the_header_is_noticed(path):
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    for place in range(0, 8 + length, 41):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(AoserialError):
            aoserial.load(path)


def test_any_flipped_bit_of_the_data_is_noticed_by_the_checksums(path):
    whole = path.read_bytes()
    (length,) = struct.unpack("<Q", whole[:8])
    for place in range(8 + length, len(whole), 13):
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        aoserial.load(path)  # structure alone is right
        with pytest.raises(IntegrityError, match="CRC-32"):
            aoserial.load(path, verify="checksums")
        assert not aoserial.verify(path, deep=True)


def test_a_header_half_old_and_half_new_is_noticed(path, tmp_path):
    other = tmp_path / "other"
    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    aoserial.save({"m.weighs": weight, "m.bias": torch.ones(8)}, other)
    old, new = path.read_bytes(), other.read_bytes()
    assert len(old) == len(new)
    for cut in range(512, len(old), 512):
        torn = new[:cut] + old[cut:]
        if torn in (old, new) or new[:cut] == old[:cut]:
            continue
        path.write_bytes(torn)
        with pytest.raises(AoserialError):
            aoserial.load(path, verify="checksums")


def test_a_header_rewritten_by_another_program_says_that_it_was(path):
    header, data = split(path)
    join(path, header, data)  # the same JSON with other spacing
    with pytest.raises(IntegrityError, match="torn, damaged or edited"):
        aoserial.load(path)


@pytest.mark.parametrize("size", [2**64 - 1, 2**63, 100_000_001])
def test_an_absurd_header_length_is_refused_before_anything_is_allocated(tmp_path, size):
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", size) + b"{}      ")
    with pytest.raises(AoserialError):
        aoserial.inspect(path)


def test_control_characters_of_a_name_are_never_printed_raw(tmp_path):
    path = tmp_path / "model.safetensors"
    header = {"\x1b[31mred": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}
    join(path, header, b"\0" * 8)
    with pytest.raises(AoserialError) as caught:
        aoserial.load(path)
    assert "\x1b" not in str(caught.value)
