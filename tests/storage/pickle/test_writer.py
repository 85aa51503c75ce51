"""Archives of torch.save, written without torch.save: what we and torch read of them."""

from __future__ import annotations

import collections
import os
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy
import pytest
import torch
from support import containers, lying_zip, pickle_assembler as asm
from support.cases import case_id, pickled_cases
from support.tensors import same_bytes
from support.trees import assert_same

from aoserial.errors import IntegrityError, LimitError, MigrationError, UnsupportedTensorError
from aoserial.storage import SlotPart, TensorPart, compute
from aoserial.storage.pickle import (
    Limits,
    MemoryStorage,
    PickleFile,
    StoragePart,
    emit,
    write_archive,
)
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.writing.layout import directory, place
from aoserial.storage.safetensors import SafetensorsFile, write_safetensors
from aoserial.storage.source import Source

CASES = list(pickled_cases())


def write(path: Path, tree: object, **options: object) -> Path:
    write_archive(path, tree, **{"durability": "rename", **options})
    return path


def rewritten(path: Path, again: Path) -> Path:
    """Reads a file and writes what it holds; both are the same to us, and the new one is whole."""
    with PickleFile.open(path) as file:
        write(again, file.tree)
        with PickleFile.open(again) as new:
            assert_same(file.tree, new.tree)
            assert not new.notes
            assert new.verify() == []
    return again


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_file_of_torchao_is_the_same_when_it_is_written_again(case, tmp_path):
    rewritten(case / "model.pt", tmp_path / "x.pt")


# -- what torch reads of it -----------------------------------------------------------------------


def base() -> torch.Tensor:
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)


def views() -> dict[str, torch.Tensor]:
    whole = base()
    return {
        "whole": whole,
        "transposed": whole.t(),
        "narrowed": whole[1:3, 2:5],
        "element": whole[2, 3],
        "empty": whole.flatten()[24:],
        "other": base()[2:],
        "expanded": torch.ones(1, 3).expand(5, 3),
        "scalar": torch.tensor(2.5),
        "nothing": torch.empty(0, 3),
        "bool": torch.tensor([True, False]),
        "last": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "conjugate": torch.tensor([1 + 2j, 3 - 4j]).conj(),
        "negative": torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
        "grad": torch.ones(2, requires_grad=True),
    }


DTYPES = [
    getattr(torch, name)
    for name in (
        *("float64", "float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e8m0fnu"),
        *("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64"),
        *("complex64", "complex128"),
    )
]


def checkpoint() -> object:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    tied = model.state_dict()
    tied["head"] = tied["0.weight"]
    return {
        "model": tied,
        "optimizer": optimizer.state_dict(),
        "epoch": 3,
        "loss": 0.1,
        "big": 2**100,
        "history": [(1, 0.5), (2, -0.0)],
        "note": "ü",
        "raw": b"\0\xff",
        "array": bytearray(b"xyz"),
        "complex": 1 - 2j,
        "set": {1, 2},
        7: None,
        "counted": collections.Counter("abca"),
        "rng": torch.get_rng_state(),
    }


class Tagged(torch.Tensor):
    """A subclass with bytes of its own."""


class Wrapped(torch.Tensor):
    """A wrapper subclass, as torchao's are."""

    @staticmethod
    def __new__(cls, inner: torch.Tensor) -> Wrapped:
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16)
        made.inner = inner
        return made

    def __init__(self, inner: torch.Tensor) -> None:
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner)
        raise NotImplementedError(func)


def special() -> dict[str, torch.Tensor]:
    dense = torch.zeros(4, 4)
    dense[0, 1] = 2.0
    scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
    return {
        "quantized": torch.quantize_per_tensor(base(), 0.5, 1, torch.qint8),
        "by channel": torch.quantize_per_channel(base()[:2], scales, zeros, 0, torch.quint8),
        "coo": dense.to_sparse(),
        "csr": dense.to_sparse_csr(),
        "bsc": dense.to_sparse_bsc((2, 2)),
        "nested": torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
        "meta": torch.empty(2, 3, device="meta", dtype=torch.float16),
        "layout": torch.strided,
        "dtype": torch.bfloat16,
        "size": torch.Size([1, 2]),
        "device": torch.device("cuda", 1),
    }


def same_object(one: object, other: object) -> None:
    """Raises unless what torch loaded of both files is the same."""
    assert type(one) is type(other)
    match one:
        case torch.Tensor():
            assert (one.dtype, one.layout) == (other.dtype, other.layout)
            assert one.requires_grad == other.requires_grad
            assert one.__dict__.keys() == other.__dict__.keys()
            if one.is_meta or one.is_nested:
                assert str(one) == str(other)
                return
            assert one.shape == other.shape
            if one.layout is torch.strided:
                assert one.stride() == other.stride()
                assert (one.is_conj(), one.is_neg()) == (other.is_conj(), other.is_neg())
            if one.is_quantized:
                assert (
                    one.q_scale() == other.q_scale()
                    if "per_tensor" in str(one.qscheme())
                    else torch.equal(one.q_per_channel_scales(), other.q_per_channel_scales())
                )
                one, other = one.int_repr(), other.int_repr()
            dense = [each.to_dense().resolve_conj().resolve_neg() for each in (one, other)]
            assert same_bytes(*dense)
        case dict():
            assert list(one) == list(other)
            for key in one:
                same_object(one[key], other[key])
            if isinstance(one, collections.OrderedDict):
                assert one.__dict__ == other.__dict__
        case list() | tuple():
            assert len(one) == len(other)
            for pair in zip(one, other, strict=True):
                same_object(*pair)
        case _:
            assert one == other


def storage_groups(tree: dict[str, torch.Tensor]) -> list[set[str]]:
    groups: dict[int, set[str]] = {}
    for name, tensor in tree.items():
        if tensor.untyped_storage().nbytes():
            groups.setdefault(tensor.untyped_storage().data_ptr(), set()).add(name)
    return sorted(groups.values(), key=sorted)


SAVED = {
    "views": views,
    "dtypes": lambda: {str(dtype): torch.ones(3).to(dtype) for dtype in DTYPES},
    "checkpoint": checkpoint,
    "special": special,
    "parameters": lambda: torch.nn.ParameterList([torch.ones(2)]).state_dict(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("mmap", [False, True])
@pytest.mark.parametrize("name", SAVED)
def test_torch_reads_what_it_read_before(name, mmap, tmp_path):
    torch.save(SAVED[name](), tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    options = {"weights_only": True, "mmap": mmap, "map_location": "cpu"}
    same_object(torch.load(tmp_path / "x.pt", **options), torch.load(again, **options))


@pytest.mark.filterwarnings("ignore")
def test_torch_makes_subclasses_of_what_has_a_class_of_its_own(tmp_path):
    tagged, sparse, plain = base().as_subclass(Tagged), base().to_sparse(), torch.ones(2)
    for tensor in (tagged, sparse, plain):
        tensor.tag = {"x": [1]}
    parameter = torch.nn.Parameter(Wrapped(torch.ones(2)))
    torch.save([tagged, sparse, plain, Wrapped(base()), parameter], tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    found = torch.load(again, weights_only=False)
    assert [type(each) for each in found[:4]] == [Tagged, torch.Tensor, torch.Tensor, Wrapped]
    assert [each.tag for each in found[:3]] == [{"x": [1]}] * 3
    assert same_bytes(found[0].as_subclass(torch.Tensor), base())
    assert same_bytes(found[1].to_dense(), base())
    assert same_bytes(found[3].inner, base())
    assert isinstance(found[4], torch.nn.Parameter)


@pytest.mark.parametrize("mmap", [False, True])
def test_torch_finds_shared_storages_shared(mmap, tmp_path):
    torch.save(views(), tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    groups = storage_groups(torch.load(again, weights_only=True, mmap=mmap))
    assert groups == storage_groups(torch.load(tmp_path / "x.pt", weights_only=True))
    assert {"whole", "transposed", "narrowed", "element", "empty"} in groups


def test_torch_reads_one_storage_as_several_dtypes_where_torch_cannot_save_it(tmp_path):
    storage = MemoryStorage(base().untyped_storage())
    tree = {
        "f": StoragePart("float32", (24,), (1,), 0, storage),
        "i": StoragePart("int32", (2, 3), (3, 1), 2, storage),
        "b": StoragePart("uint8", (96,), (1,), 0, storage),
    }
    write(tmp_path / "x.pt", tree)
    for mmap in (False, True):
        found = torch.load(tmp_path / "x.pt", weights_only=True, mmap=mmap)
        assert same_bytes(found["f"], base().flatten())
        assert same_bytes(found["i"], base().flatten().view(torch.int32)[2:8].reshape(2, 3))
        assert len(storage_groups(found)) == 1


def test_torch_computes_the_places_of_storages_as_they_are(tmp_path, monkeypatch):
    from torch.utils.serialization import config

    tree = {str(at): torch.full((at * 7 % 5, 3), at) for at in range(40)}
    torch.save(tree, tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    monkeypatch.setenv("TORCH_SERIALIZATION_DEBUG", "1")  # it checks them
    with config.patch("load.calculate_storage_offsets", True):
        same_object(tree, torch.load(again, weights_only=True, mmap=True))


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_files_of_every_protocol_and_container(protocol, tmp_path):
    path = tmp_path / "x.pt"
    for zipped in (True, False):
        torch.save(
            checkpoint(), path, pickle_protocol=protocol, _use_new_zipfile_serialization=zipped
        )
        again = rewritten(path, tmp_path / "y.pt")
        same_object(torch.load(path, weights_only=False), torch.load(again, weights_only=False))


def test_a_tar_of_2016_becomes_a_zip(tmp_path):
    (tmp_path / "x.pt").write_bytes(containers.tarred(asm.stream(asm.dict_(asm.text("a"), b"K\1"))))
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    assert torch.load(again, weights_only=True) == {"a": 1}


def test_numpys_arrays(tmp_path):
    arrays = {
        "f": numpy.arange(6, dtype="f4").reshape(2, 3),
        "fortran": numpy.asfortranarray(numpy.arange(6).reshape(2, 3)),
        "big": numpy.arange(4, dtype=">i2"),
        "bool": numpy.array([True, False]),
        "empty": numpy.empty((0, 3)),
        "scalar": numpy.array(1.5),
        "dtype": numpy.dtype("f4"),
        "objects": numpy.array(["x", None], dtype=object),
        "fields": numpy.zeros(2, dtype="i4,f4"),
    }
    torch.save([arrays, arrays["f"]], tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    found, first = torch.load(again, weights_only=False)
    assert first is found["f"]
    for name, array in arrays.items():
        if isinstance(array, numpy.ndarray):
            assert found[name].dtype.newbyteorder("=") == array.dtype.newbyteorder("="), name
            assert found[name].flags.f_contiguous == array.flags.f_contiguous
            assert found[name].tolist() == array.tolist()
    assert found["dtype"] == numpy.dtype("f4")


def test_bytes_and_arrays_beyond_the_limit_of_a_text(tmp_path):
    data = numpy.full(40 * 2**20, 200, dtype="u1")
    torch.save({"a": data, "b": data.tobytes()}, tmp_path / "x.pt", pickle_protocol=4)
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    assert torch.load(again, weights_only=False)["b"] == data.tobytes()


# -- the archive ----------------------------------------------------------------------------------


def test_the_archive_is_laid_out_as_torchs(tmp_path):
    torch.save(views(), tmp_path / "x.pt")
    raw = rewritten(tmp_path / "x.pt", tmp_path / "y.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "y.pt") as archive, zipfile.ZipFile(tmp_path / "x.pt") as other:
        assert archive.testzip() is None
        told, torchs = archive.infolist(), other.infolist()[:-1]  # but for its serialization_id
        assert [info.filename.split("/", 1)[1] for info in told] == [
            info.filename.split("/", 1)[1] for info in torchs
        ]
        for info, theirs in zip(told, torchs, strict=True):
            assert data_start(raw, info) % 64 == 0
            assert (info.flag_bits, info.date_time, info.extra) == (
                theirs.flag_bits, theirs.date_time, theirs.extra,
            )  # fmt: skip
            if info.filename.endswith(
                (".format_version", ".storage_alignment", "order", "version")
            ):
                assert archive.read(info) == other.read(theirs)


def data_start(raw: bytes, info: zipfile.ZipInfo) -> int:
    name, extra = struct.unpack_from("<2H", raw, info.header_offset + 26)
    return info.header_offset + 30 + name + extra


def test_the_archive_is_what_the_lying_zip_builds_when_it_does_not_lie(tmp_path):
    tree = {"a": TensorPart(base()), "b": TensorPart(torch.ones(0)), "c": TensorPart(torch.ones(3))}
    raw = write(tmp_path / "x.pt", tree).read_bytes()
    with zipfile.ZipFile(tmp_path / "x.pt") as archive:
        entries = [lying_zip.Entry(name, archive.read(name)) for name in archive.namelist()]
    assert raw == lying_zip.build(entries)


GIB = 2**30


def test_entries_beyond_four_gib_have_zip64_fields(tmp_path):
    sizes = [("version", 2), ("data/0", 4 * GIB + 5), ("data/1", 3), ("data/2", 0)]
    placed = place(sizes, "x")
    crcs = [zlib.crc32(b"3\n"), 7, zlib.crc32(b"abc"), 0]
    with (tmp_path / "x.zip").open("wb") as out:
        for entry, crc, data in zip(placed, crcs, (b"3\n", b"", b"abc", b""), strict=True):
            out.seek(entry.header)
            out.write(entry.local + data)
            out.seek(entry.start + entry.nbytes)
            out.write(entry.descriptor(crc))
        out.seek(placed[-1].end)
        out.write(directory(placed, crcs))
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        told = archive.infolist()
        assert [(info.file_size, info.header_offset, info.CRC) for info in told] == [
            (entry.nbytes, entry.header, crc) for entry, crc in zip(placed, crcs, strict=True)
        ]
        assert archive.read("x/data/1") == b"abc"
    assert all(entry.start % 64 == 0 for entry in placed)
    assert [bool(entry.wide) for entry in placed] == [False, True, True, True]
    with Source.open(tmp_path / "x.zip") as source:
        from aoserial.storage.pickle.entries import read_entries
        from aoserial.storage.pickle.zip import read_directory

        found = read_entries(source, read_directory(source, Limits()))
        assert [entry.start for entry in found] == [entry.start for entry in placed]
    reader = torch._C.PyTorchFileReader(str(tmp_path / "x.zip"))
    assert reader.get_record("data/1") == b"abc"
    assert reader.get_record_offset("data/0") == placed[1].start


def test_more_entries_than_16_bits_count(tmp_path):
    placed = place([(str(at), 0) for at in range(70_000)], "x")
    told = directory(placed, [0] * 70_000)
    with (tmp_path / "x.zip").open("wb") as out:
        out.write(b"".join(entry.local for entry in placed) + told)
    with zipfile.ZipFile(tmp_path / "x.zip") as archive:
        assert len(archive.namelist()) == 70_000


def test_equal_trees_are_equal_files(tmp_path):
    tree = {"a": TensorPart(base()), "s": {f"name {at}" for at in range(99)}, "b": [1, "x"]}
    one = write(tmp_path / "x.pt", tree).read_bytes()
    assert one == write(tmp_path / "other.bin", dict(tree)).read_bytes()
    assert one == write(tmp_path / "y.pt", tree, durability="fsync+verify").read_bytes()


def test_written_twice_it_is_the_same_bytes(tmp_path):
    torch.save(checkpoint(), tmp_path / "x.pt")
    one = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    assert one.read_bytes() == rewritten(one, tmp_path / "z.pt").read_bytes()


# -- bytes ----------------------------------------------------------------------------------------


def big_endian(tmp_path: Path, data: bytes, body: bytes) -> Path:
    entries = lying_zip.archive(asm.stream(body), {"0": data})
    (mark,) = [entry for entry in entries if entry.name.endswith("byteorder")]
    mark.data = b"big"
    (tmp_path / "big.pt").write_bytes(lying_zip.build(entries))
    return tmp_path / "big.pt"


@pytest.mark.parametrize(
    ("cls", "form", "numbers"),
    [
        ("FloatStorage", ">4f", (1, 2, 3, 4)),
        ("ShortStorage", ">4h", (1, -2, 3, 4)),
        ("LongStorage", ">4q", (1, 2**40, 3, 4)),
        ("ByteStorage", ">4B", (1, 2, 3, 255)),
        ("ComplexFloatStorage", ">8f", (1, 2, 3, 4, 5, 6, 7, 8)),
    ],
)
def test_big_endian_storages_are_written_little_endian(cls, form, numbers, tmp_path):
    body = asm.tensor(asm.storage(cls=cls), offset=1, size=(3,))
    path = big_endian(tmp_path, struct.pack(form, *numbers), body)
    with PickleFile.open(path) as file:
        expected = file.tree.read()
        write(tmp_path / "x.pt", file.tree)
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    assert same_bytes(found, expected)
    assert same_bytes(found, torch.load(path, weights_only=True))


def test_a_big_endian_storage_with_numbers_of_two_sizes_is_refused(tmp_path):
    body = asm.list_(
        asm.tensor(),
        asm.call(
            asm.global_("torch._utils", "_rebuild_tensor_v3"), asm.storage(), b"K\0",
            asm.ints((2,)), asm.ints((1,)), asm.FALSE, asm.EMPTY_DICT,
            asm.global_("torch", "int16"),
        ),
    )  # fmt: skip
    with (
        PickleFile.open(big_endian(tmp_path, bytes(16), body)) as file,
        pytest.raises(UnsupportedTensorError, match="float32, int16") as caught,
    ):
        write(tmp_path / "x.pt", file.tree)
    assert caught.value.location.name == "0"
    assert not (tmp_path / "x.pt").exists()


def test_windows_keep_the_bytes_of_what_is_in_them(tmp_path):
    whole = torch.randn(1000, 10)
    torch.save({"a": whole[500:510], "b": whole[505:700].t()}, tmp_path / "x.pt")
    again = rewritten(tmp_path / "x.pt", tmp_path / "y.pt")
    assert again.stat().st_size < 12_000
    found = torch.load(again, weights_only=True)
    assert same_bytes(found["a"], whole[500:510])
    assert found["b"].untyped_storage().nbytes() == 200 * 10 * 4


def test_parts_of_a_safetensors_file(tmp_path):
    tensors = {"a": base(), "b": torch.ones(3, dtype=torch.bfloat16)}
    write_safetensors(
        tmp_path / "x.safetensors",
        {name: TensorPart(tensor) for name, tensor in tensors.items()},
        metadata={},
    )
    with SafetensorsFile.open(tmp_path / "x.safetensors") as file:
        made = compute(lambda a: a + 1, file.parts["a"], dtype="float32", shape=(4, 6))
        view = file.parts["a"].view("uint8", (96,))
        write(tmp_path / "x.pt", {**file.parts, "c": made, "v": view})
    found = torch.load(tmp_path / "x.pt", weights_only=True)
    assert same_bytes(found.pop("c"), base() + 1)
    assert same_bytes(found.pop("v"), base().view(-1).view(torch.uint8))
    same_object(found, tensors)


def test_a_dtype_that_torch_does_not_have_is_refused(tmp_path):
    with pytest.raises(UnsupportedTensorError, match="float6") as caught:
        write(tmp_path / "x.pt", {"w": SlotPart("w", "float6_e2m3fn", (4,))})
    assert caught.value.location.name == "w"
    assert not (tmp_path / "x.pt").exists()


def test_a_storage_on_the_meta_device_is_refused():
    with pytest.raises(UnsupportedTensorError, match="meta"):
        MemoryStorage(torch.empty(3, device="meta").untyped_storage())


def test_storages_in_memory_are_read_like_those_of_files():
    storage = MemoryStorage(base().untyped_storage())
    part = StoragePart("float32", (6, 4), (1, 6), 0, storage)
    assert not part.contiguous
    assert same_bytes(part.read(), base().t().contiguous())
    assert same_bytes(StoragePart("float32", (2, 3), (3, 1), 4, storage).read().flatten(),
                      base().flatten()[4:10])  # fmt: skip
    chunks = [bytes(chunk) for chunk in storage.chunks(3, 90, 16)]
    assert b"".join(chunks) == base().numpy().tobytes()[3:93]
    assert max(map(len, chunks)) == 16
    huge = StoragePart("float32", (2**20, 2**20), (0, 0), 0, storage)
    with pytest.raises(LimitError):
        huge.read()


# -- how it is written ----------------------------------------------------------------------------


def test_it_may_be_written_over_the_file_it_comes_from(tmp_path):
    torch.save(views(), tmp_path / "x.pt")
    for mapped in (True, False):
        with PickleFile.open(tmp_path / "x.pt", mapped=mapped) as file:
            write(tmp_path / "x.pt", file.tree)
    same_object(torch.load(tmp_path / "x.pt", weights_only=True)["whole"], base())


def test_what_is_refused_leaves_the_target_as_it_was(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"before")
    for tree, error in (
        ({"a": object()}, UnsupportedTensorError),
        ({"a": {"b": SlotPart("w", "float32", (4,))}}, MigrationError),
    ):
        with pytest.raises(error) as caught:
            write(tmp_path / "x.pt", tree)
        assert caught.value.location.name in {"a", "a.b"}
        assert (tmp_path / "x.pt").read_bytes() == b"before"
        assert [path.name for path in tmp_path.iterdir()] == ["x.pt"]


def test_progress_tells_bytes_written_of_all(tmp_path):
    told: list[tuple[int, int]] = []
    tree = {"a": TensorPart(torch.ones(3_000_000)), "b": TensorPart(torch.ones(3))}
    saved = write_archive(
        tmp_path / "x.pt", tree, durability="rename", progress=lambda *done: told.append(done)
    )
    assert (saved.nbytes, saved.storages) == ((tmp_path / "x.pt").stat().st_size, 2)
    assert told == sorted(told)
    assert told[-1] == (saved.nbytes, saved.nbytes)
    assert len(told) > 5


@pytest.mark.parametrize("where", [100, 800, -10])
def test_a_file_that_is_not_what_was_written_is_refused(where, tmp_path, monkeypatch):
    from aoserial.storage.atomic import AtomicFile

    pread = AtomicFile.pread

    def damaged(self: AtomicFile, count: int, offset: int) -> bytes:
        data = bytearray(pread(self, count, offset))
        at = where % self.size - offset
        if 0 <= at < len(data):
            data[at] ^= 1
        return bytes(data)

    monkeypatch.setattr(AtomicFile, "pread", damaged)
    with pytest.raises(IntegrityError, match="read back"):
        write(tmp_path / "x.pt", {"a": TensorPart(base())}, durability="fsync+verify")
    assert not (tmp_path / "x.pt").exists()


def test_storages_of_files_pass_through_in_pieces(tmp_path):
    (tmp_path / "data").write_bytes(b"")
    os.truncate(tmp_path / "data", 64 * 2**20)
    with Source.open(tmp_path / "data", mapped=False) as source:
        storage = StorageRef(source, "0", 0, 64 * 2**20)
        tree = StoragePart("float32", (2**24,), (1,), 0, storage)
        tracemalloc.start()
        write(tmp_path / "x.pt", tree)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak < 8 * 2**20
    assert (tmp_path / "x.pt").stat().st_size > 64 * 2**20


def test_many_tensors_make_a_small_pickle():
    storage = MemoryStorage(base().untyped_storage())
    names = [f"model.layers.{at}.weight" for at in range(1000)]
    tree = {name: StoragePart("float32", (4, 6), (6, 1), 0, storage) for name in names}
    emitted = emit(tree)
    assert len(emitted.records) == 1
    assert len(emitted.pickle) < 80 * 1000
