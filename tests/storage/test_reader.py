"""Opening files and reading tensors from them."""

from __future__ import annotations

import gc
import json
import os
import pickle
import socket
import threading

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from aoserial.errors import (
    ChangedWhileReadingError,
    FormatError,
    HeaderError,
    MissingFileError,
    PathError,
    UnknownNameError,
)
from aoserial.storage import DTYPES
from aoserial.storage.safetensors import SafetensorsFile

MODES = pytest.mark.parametrize("mapped", [True, False], ids=["mapped", "pread"])


def raw_bytes(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def specimen():
    torch.manual_seed(0)
    tensors = {}
    for row in DTYPES:
        if row.in_torch:
            bound = 2 if row.name == "bool" else 256
            tensor = torch.randint(bound, (3, 16), dtype=torch.uint8)
            tensors[row.name] = tensor.view(getattr(torch, row.name))
    tensors["scalar"] = torch.tensor(1.5)
    tensors["empty"] = torch.empty(0, 7, dtype=torch.bfloat16)
    tensors["-0 and NaN"] = torch.tensor([-0.0, float("nan"), float("inf")])
    return tensors


def write(path, items, data):
    """A file with this header (name → dtype, shape, begin, end) and data."""
    header = {
        name: {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        for name, (dtype, shape, begin, end) in items.items()
    }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # so that offsets alone decide what is aligned
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


@pytest.fixture
def saved(tmp_path):
    path = tmp_path / "x.safetensors"
    save_file(specimen(), path, metadata={"format": "pt"})
    return path


@MODES
def test_every_dtype_reads_as_the_reference_reads_it(saved, mapped):
    with SafetensorsFile.open(saved, mapped=mapped) as file, safe_open(saved, "pt") as reference:
        assert set(file.names) == set(reference.keys())
        assert file.metadata == reference.metadata()
        for name, tensor in zip(file.names, file.tensors(file.names), strict=True):
            expected = reference.get_tensor(name)
            assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
            assert raw_bytes(tensor) == raw_bytes(expected)
            assert raw_bytes(file.tensor(name)) == raw_bytes(expected)
            assert raw_bytes(file.parts[name].read()) == raw_bytes(expected)


@MODES
def test_tensors_outlive_the_file_and_may_be_written_to(saved, mapped):
    before = saved.read_bytes()
    with SafetensorsFile.open(saved, mapped=mapped) as file:
        tensors = dict(zip(file.names, file.tensors(file.names), strict=True))
    del file
    gc.collect()
    for tensor in tensors.values():
        tensor.zero_()
        assert not any(raw_bytes(tensor))
    assert saved.read_bytes() == before


@MODES
def test_each_tensor_has_a_storage_of_its_own(saved, mapped):
    with SafetensorsFile.open(saved, mapped=mapped) as file:
        for name in file.names:
            tensor = file.tensor(name)
            assert tensor.untyped_storage().nbytes() == tensor.nbytes
            assert tensor.is_contiguous()
            assert tensor.storage_offset() == 0


def test_pickling_one_tensor_does_not_drag_the_file_along(tmp_path):
    path = tmp_path / "big"
    save_file({"small": torch.ones(4), "big": torch.ones(1_000_000)}, path)
    with SafetensorsFile.open(path) as file:
        assert len(pickle.dumps(file.tensor("small"))) < 2000


@MODES
def test_misaligned_data_is_copied_to_where_it_is_aligned(tmp_path, mapped):
    data = bytes(range(1, 22))
    path = write(
        tmp_path / "x",
        {
            "byte": ("U8", [1], 0, 1),
            "f32": ("F32", [2], 1, 9),
            "i64": ("I64", [], 9, 17),
            "f4": ("F4", [2, 4], 17, 21),
        },
        data,
    )
    with SafetensorsFile.open(path, mapped=mapped) as file, safe_open(path, "pt") as reference:
        for name in file.names:
            tensor = file.tensor(name)
            assert tensor.data_ptr() % tensor.itemsize == 0
            assert raw_bytes(tensor) == raw_bytes(reference.get_tensor(name))
        viewed = file.parts["f32"].view("int64", ()).read()
        assert viewed.data_ptr() % 8 == 0
        assert raw_bytes(viewed) == data[1:9]


@MODES
@pytest.mark.parametrize("content", [b"\0\1\2\1", b"\xff\0\0\0", b"\1\1\1\x80"])
def test_a_bool_that_is_neither_true_nor_false_is_refused(tmp_path, mapped, content):
    path = write(tmp_path / "x", {"mask": ("BOOL", [4], 0, 4)}, content)
    with SafetensorsFile.open(path, mapped=mapped) as file:
        with pytest.raises(FormatError, match="neither 0 nor 1") as caught:
            file.tensors(["mask"])
        assert caught.value.location.name == "mask"
        assert raw_bytes(file.parts["mask"].read_bytes()) == content


@MODES
def test_f6_is_listed_and_its_bytes_read(tmp_path, mapped):
    path = write(tmp_path / "x", {"codes": ("F6_E2M3", [4], 0, 3)}, b"abc")
    with SafetensorsFile.open(path, mapped=mapped) as file:
        part = file.parts["codes"]
        assert (part.dtype, part.shape, part.nbytes) == ("float6_e2m3fn", (4,), 3)
        with pytest.raises(FormatError, match="no dtype float6_e2m3fn"):
            part.read()
        assert raw_bytes(part.view("uint8", (3,)).read()) == b"abc"


@MODES
def test_an_unknown_name_is_a_key_error(saved, mapped):
    with SafetensorsFile.open(saved, mapped=mapped) as file:
        for ask in (file.tensor, file.parts.__getitem__, lambda name: file.tensors([name])):
            with pytest.raises(UnknownNameError, match="no tensor 'nowhere'"):
                ask("nowhere")
        assert "nowhere" not in file.parts


def test_parts_are_made_once_and_know_where_their_bytes_lie(saved):
    content = saved.read_bytes()
    with SafetensorsFile.open(saved) as file:
        assert list(file.parts) == file.names
        assert len(file.parts) == len(specimen())
        for name, part in file.parts.items():
            assert part is file.parts[name]
            assert part.key == name
            assert part.source is file.source
            lying = content[part.offset : part.offset + part.nbytes]
            assert lying == raw_bytes(part.read())
            assert b"".join(bytes(piece) for piece in part.chunks(5)) == lying


def test_a_name_given_twice_gives_two_tensors(saved):
    with SafetensorsFile.open(saved) as file:
        first, second = file.tensors(["float32", "float32"])
        assert raw_bytes(first) == raw_bytes(second)


def test_a_symlink_is_followed(saved, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(saved.name)
    with SafetensorsFile.open(link) as file:
        assert file.path == str(link)
        assert "float32" in file.parts


def test_what_is_no_regular_file_is_refused_and_never_waited_for(tmp_path):
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
        for path, words in {
            tmp_path: "a folder",
            tmp_path / "fifo": "a FIFO",
            tmp_path / "socket": "cannot be opened",
            "/dev/zero": "a character device",
            "nul\0": "cannot be opened",
        }.items():
            with pytest.raises(PathError, match=words) as caught:
                SafetensorsFile.open(path)
            assert isinstance(caught.value, OSError)


def test_a_missing_file_is_a_file_not_found_error(tmp_path, saved):
    for path in (tmp_path / "none", saved / "under a file"):
        with pytest.raises(MissingFileError, match="no such file") as caught:
            SafetensorsFile.open(path)
        assert isinstance(caught.value, FileNotFoundError)
        assert caught.value.location.file == str(path)


def test_a_file_that_shrinks_raises_instead_of_killing_when_not_mapped(saved):
    with SafetensorsFile.open(saved, mapped=False) as file:
        os.truncate(saved, saved.stat().st_size - 4)
        with pytest.raises(ChangedWhileReadingError, match="bytes then"):
            file.tensors(file.names)


def test_a_file_that_shrinks_before_it_is_mapped_raises(saved):
    with SafetensorsFile.open(saved) as file:
        os.truncate(saved, 10)
        with pytest.raises(ChangedWhileReadingError):
            file.tensors(file.names)


def test_a_closed_file_says_so(saved):
    file = SafetensorsFile.open(saved)
    file.close()
    file.close()
    with pytest.raises(PathError, match="closed"):
        file.tensor("float32")


def test_a_refused_file_leaves_no_descriptor_open(tmp_path):
    path = tmp_path / "x"
    path.write_bytes(b"no header")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        with pytest.raises(HeaderError):
            SafetensorsFile.open(path)
    assert len(os.listdir("/proc/self/fd")) == before


def test_threads_may_read_at_once(saved):
    with SafetensorsFile.open(saved) as file:
        expected = [raw_bytes(tensor) for tensor in file.tensors(file.names)]
        found = []
        threads = [
            threading.Thread(target=lambda: found.append(file.tensors(file.names)))
            for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(found) == 8
        for tensors in found:
            assert [raw_bytes(tensor) for tensor in tensors] == expected
