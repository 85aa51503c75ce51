"""Container detection by first bytes."""

from __future__ import annotations

import gzip
import io
import lzma
import pickle
import tarfile
import zipfile

import pytest
import torch

from aoserial.errors import FormatError, HeaderError
from aoserial.storage import Source, detect, looks_like
from aoserial.storage.safetensors import SafetensorsFile
from aoserial.storage.sniff import SNIFF_BYTES, is_pickle


def _zipped():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("a", "b")
    return buffer.getvalue()


def _tarred():
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("a"), io.BytesIO())
    return buffer.getvalue()


def _saved(**options):
    buffer = io.BytesIO()
    torch.save({"a": torch.ones(2)}, buffer, **options)
    return buffer.getvalue()


KINDS = {
    b"": "empty",
    bytes(600): "zero bytes",
    b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n": "git-LFS",
    b"<!DOCTYPE html><html>": "HTML",
    b"\xef\xbb\xbf\n<html lang='en'>": "HTML",
    b"<?xml version='1.0'?><Error><Code>AccessDenied</Code></Error>": "XML",
    b'{"error": "Repository not found"}': "JSON",
    b'{\n  "weight_map": {}}': "JSON",
    b"[]": "JSON",
    b"Invalid credentials in Authorization header": "plain text",
    _zipped(): "zip archive",
    _tarred(): "tar archive",
    _saved(): "zip archive",
    _saved(_use_new_zipfile_serialization=False): "a pickle",
    pickle.dumps({}): "a pickle",
    gzip.compress(b"x"): "gzip",
    lzma.compress(b"x"): "xz",
    b"\x28\xb5\x2f\xfd\x04\x00": "zstd",
    b"GGUF\x03\0\0\0": "GGUF",
    b"\x93NUMPY\x01\0": "NumPy",
    b"\x89HDF\r\n\x1a\n": "HDF5",
    b"%PDF-1.7": "PDF",
    "{}".encode("utf-16"): "UTF-16",
    b"\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a": "no kind",
}


@pytest.mark.parametrize("content", KINDS, ids=KINDS.values())
def test_a_file_of_another_kind_is_refused_with_a_phrase_that_says_which(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert KINDS[content] in looks_like(content)
    for read in (SafetensorsFile.open, lambda path: detect(Source.open(path))):
        with pytest.raises(HeaderError) as caught:
            read(path)
        assert KINDS[content] in str(caught.value) or "no kind" in KINDS[content]
        assert "not a safetensors file" in str(caught.value)


@pytest.mark.parametrize("content", [_zipped(), _tarred(), pickle.dumps({})])
def test_a_pickle_is_known_by_its_first_bytes_and_is_no_safetensors_file(content, tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(content)
    assert is_pickle(content[:SNIFF_BYTES])
    with pytest.raises(FormatError, match="not a safetensors file: it is a"):
        SafetensorsFile.open(path)


def test_a_header_whose_length_looks_like_a_pickle_is_a_safetensors_file():
    header = (0x0280).to_bytes(8, "little") + b"{" + b" " * 0x27E + b"}"
    assert header.startswith(b"\x80\x02")
    assert not is_pickle(header[:SNIFF_BYTES])


def test_a_zip_appended_to_a_safetensors_file_is_trailing_data(tmp_path):
    path = tmp_path / "polyglot.zip"
    path.write_bytes((2).to_bytes(8, "little") + b"{}" + _zipped())
    assert zipfile.is_zipfile(path)
    assert detect(Source.open(path)) == "safetensors"
    with pytest.raises(HeaderError, match="bytes of data"):
        SafetensorsFile.open(path)


def test_the_first_bytes_decide_whatever_lies_in_metadata_or_padding(tmp_path):
    path = tmp_path / "x"
    text = b'{"__metadata__":{"a":"PK\\u0003\\u0004%PDF-1.7"}}    '
    path.write_bytes(len(text).to_bytes(8, "little") + text)
    assert SafetensorsFile.open(path).metadata == {"a": "PK\x03\x04%PDF-1.7"}


def test_a_header_that_does_not_start_with_a_brace_is_named_as_such(tmp_path):
    path = tmp_path / "x"
    path.write_bytes((3).to_bytes(8, "little") + b" {}")
    with pytest.raises(HeaderError, match="byte 8 is 0x20"):
        SafetensorsFile.open(path)
