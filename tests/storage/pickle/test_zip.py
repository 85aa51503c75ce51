"""The zip container: all that torch writes, and nothing about which two readers could disagree."""

from __future__ import annotations

import io
import os
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

import pytest
import torch
from support import containers, lying_zip
from support.lying_zip import End, Entry, archive, build
from support.pickle_assembler import dict_, storage, stream, tensor, text

from aoserial.errors import AoserialError, ContainerError, IntegrityError, LimitError, PickleError
from aoserial.storage.pickle import Limits, PickleFile

PICKLE = stream(dict_(text("a"), tensor(), text("b"), tensor(storage("1"))))
STORAGES = {"0": containers.FLOATS, "1": struct.pack("<4f", 5, 6, 7, 8)}


def entries() -> list[Entry]:
    return archive(PICKLE, STORAGES)


@pytest.fixture
def read(tmp_path):
    """Opens bytes as a file, and gives its tensors as lists."""

    def read(data: bytes, **options):
        path = tmp_path / "x.pt"
        path.write_bytes(data)
        with PickleFile.open(path, **options) as file:
            assert file.container == "zip"
            return {name: part.read().tolist() for name, part in file.tensors()}

    return read


GOOD = {"a": [1, 2, 3, 4], "b": [5, 6, 7, 8]}


# -- what is accepted ---------------------------------------------------------------------------


def test_the_writer_of_these_tests_lays_out_as_torch_does(tmp_path):
    torch.save({"a": torch.ones(4)}, tmp_path / "a.pt")
    found = zipfile.ZipFile(tmp_path / "a.pt")
    # the ordinary attributes that matter for layout agree with those of build()
    ours = zipfile.ZipFile(io.BytesIO(build(entries())))
    for archive_ in (found, ours):
        for info in archive_.infolist():
            assert (info.flag_bits, info.compress_type, info.extra) == (0x808, 0, b"")
            raw = archive_.fp
            raw.seek(info.header_offset + 26)
            name, extra = struct.unpack("<HH", raw.read(4))
            assert (info.header_offset + 30 + name + extra) % 64 == 0


@pytest.mark.parametrize("mapped", [True, False])
def test_an_archive_as_torch_lays_it_out(read, mapped):
    data = build(entries())
    assert read(data, mapped=mapped) == GOOD
    loaded = torch.load(io.BytesIO(data), weights_only=True)
    assert {name: tensor_.tolist() for name, tensor_ in loaded.items()} == GOOD


@pytest.mark.parametrize(
    "variant",
    [
        lambda: build(entries(), End(zip64=False)),
        lambda: build([Entry(**{**vars(e), "described": False}) for e in entries()]),
        lambda: build([Entry(**{**vars(e), "align": 0}) for e in entries()]),
        lambda: build([Entry(**{**vars(e), "crc32": 0}) for e in entries()]),
        lambda: build(entries()[::-1]),
        lambda: build(archive(PICKLE, STORAGES, root="模型 v1.0")),
        lambda: build([*entries(), Entry("a/.data/serialization_id", b"1" * 40)]),
        lambda: build([*entries(), Entry("a/data/2", b"")]),
    ],
    ids=["no zip64", "sizes in front", "unaligned", "no crc", "reversed", "root", "id", "empty"],
)
def test_other_layouts_that_are_just_as_clear(read, variant):
    assert read(variant()) == GOOD


def test_an_archive_zipped_again_by_python(read):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as again:
        for entry in entries():
            again.writestr(entry.name, entry.data)
    assert read(out.getvalue()) == GOOD


def test_an_archive_streamed_by_python(read):
    class Pipe(io.RawIOBase):
        data = b""

        def writable(self):
            return True

        def write(self, data):
            self.data += bytes(data)
            return len(data)

    pipe = Pipe()
    with zipfile.ZipFile(pipe, "w") as again:
        for entry in entries():
            again.writestr(entry.name, entry.data)
    assert read(pipe.data) == GOOD


@pytest.mark.parametrize("compute", [True, False])
def test_torch_may_leave_the_checksums_out(tmp_path, compute):
    torch.serialization.set_crc32_options(compute)
    try:
        torch.save(torch.arange(5.0), tmp_path / "x.pt")
    finally:
        torch.serialization.set_crc32_options(True)
    with PickleFile.open(tmp_path / "x.pt") as file:
        assert file.tree.read().tolist() == [0, 1, 2, 3, 4]
        assert (file.tree.storage.crc32 is not None) is compute
        assert file.verify() == []


def test_numbers_of_the_other_byte_order_are_swapped(read):
    body = stream(
        dict_(
            text("a"),
            tensor(),
            text("c"),
            tensor(storage("1", 2, cls="ComplexFloatStorage"), size=(2,)),
        )
    )
    swapped = [
        Entry("a/data.pkl", body),
        Entry("a/byteorder", b"big"),
        Entry("a/data/0", struct.pack(">4f", 1, 2, 3, 4)),
        Entry("a/data/1", struct.pack(">4f", 1, -1, 2, -2)),
    ]
    for mapped in (True, False):
        assert read(build(swapped), mapped=mapped) == {"a": [1, 2, 3, 4], "c": [1 - 1j, 2 - 2j]}


def test_entries_of_unknown_meaning_are_noted_and_not_read(tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(build([*entries(), Entry("a/extra/\N{SNOWMAN}.json", b"{}")]))
    with PickleFile.open(path) as file:
        assert file.notes == ["left out the archive entry 'extra/\N{SNOWMAN}.json'"]


def test_storages_that_nothing_refers_to_are_no_error(read):
    assert read(build(archive(PICKLE, {**STORAGES, "2": b"left over"}))) == GOOD


def test_an_archive_beyond_four_gigabytes(tmp_path):
    """Sizes and places in zip64 fields, and descriptors of 24 bytes."""
    path = tmp_path / "big.pt"
    count = 2**32 + 8
    far = tensor(storage("0", count, cls="ByteStorage"), size=(2,), offset=count - 2)
    body = stream(dict_(text("a"), far, text("b"), tensor(storage("1"))))
    lying_zip.write_wide(
        path,
        [
            ("a/data.pkl", 0, body),
            ("a/data/0", count - 2, b"\x07\x08"),
            ("a/data/1", 0, containers.FLOATS),
            ("a/data/2", 0, b""),
            ("a/version", 0, b"3\n"),
        ],
    )
    for mapped in (True, False):
        with PickleFile.open(path, mapped=mapped) as file:
            assert file.tree["a"].read().tolist() == [7, 8]
            assert file.tree["b"].read().tolist() == [1, 2, 3, 4]
    loaded = torch.load(path, weights_only=True, mmap=True)
    assert {name: each.tolist() for name, each in loaded.items()} == {
        "a": [7, 8],
        "b": [1, 2, 3, 4],
    }


# -- checksums ----------------------------------------------------------------------------------


def test_a_damaged_storage_is_found_when_asked(tmp_path):
    data = bytearray(build(entries()))
    data[data.index(STORAGES["1"])] ^= 1
    (tmp_path / "x.pt").write_bytes(data)
    with PickleFile.open(tmp_path / "x.pt") as file:
        (fault,) = file.verify()
        assert isinstance(fault, IntegrityError)
        assert "storage 1 is damaged" in str(fault)
        file.tree["a"].storage.check_crc()


def test_a_damaged_pickle_is_found_at_once(read):
    data = bytearray(build(entries()))
    data[data.index(b"FloatStorage")] ^= 1
    with pytest.raises(IntegrityError, match="data.pkl is damaged"):
        read(bytes(data))


def test_the_pickle_that_is_run_is_the_one_whose_checksum_is_right(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    data = build(entries())
    path.write_bytes(data)
    crc32 = zlib.crc32

    def edited_afterwards(*arguments: Any) -> int:
        found = crc32(*arguments)
        path.write_bytes(data.replace(text("a"), text("z")))
        return found

    monkeypatch.setattr(zlib, "crc32", edited_afterwards)
    with PickleFile.open(path) as file:
        assert set(file.tree) == {"a", "b"}


# -- what is refused ----------------------------------------------------------------------------


def replaced(name: str, **changes) -> list[Entry]:
    found = entries()
    for entry in found:
        if entry.name == f"a/{name}":
            for key, value in changes.items():
                setattr(entry, key, value)
    return found


WIDE = struct.pack("<HHQ", 1, 8, 16)

LIES = {
    # two readers, two archives
    "duplicate data.pkl": (
        lambda: build([*entries(), Entry("a/data.pkl", PICKLE)]),
        "occurs twice",
    ),
    "duplicate storage": (
        lambda: build([*entries(), Entry("a/data/0", b"x" * 16)]),
        "occurs twice",
    ),
    "twice but for the case": (
        lambda: build([*entries(), Entry("a/DATA.PKL", b"")]),
        "occurs twice",
    ),
    "two archives in a row": (lambda: build(entries()) * 2, "locator points"),
    "two archives without zip64": (lambda: build(entries(), End(zip64=False)) * 2, "must end"),
    "archive after another": (lambda: build(entries(), prefix=build(entries())), "instead of 0"),
    "bytes in front": (lambda: b"PK\3\4" + build(entries()), "locator points"),
    "bytes in front, offsets true": (
        lambda: build(entries(), prefix=b"PK\3\4" + b"#" * 60),
        "leaves a gap",
    ),
    "byte behind": (lambda: build(entries(), suffix=b"\0"), "cut off, or something follows"),
    "comment": (lambda: build(entries(), End(comment=b"hello")), "cut off, or something|comment"),
    "end record in a comment": (
        lambda: build(entries(), End(comment=build(archive(PICKLE))[-98:])),
        "comment|must end|locator",
    ),
    "comment length without a comment": (
        lambda: build(entries(), End(end={"comment_length": 4})),
        "comment",
    ),
    "gap between entries": (lambda: build(replaced("data/0", before=b"PK\3\4gap")), "leaves a gap"),
    "gap after a descriptor": (lambda: build(replaced("data/0", after=b"gap")), "leaves a gap"),
    "gap before the directory": (
        lambda: build(entries(), End(before_directory=b"gap")),
        "something between",
    ),
    "gap before the end": (lambda: build(entries(), End(before_end=b"gap")), "must end at byte"),
    "entry that is not listed": (lambda: build(replaced("data/1", listed=False)), "leaves a gap"),
    "entry that is not there": (
        lambda: build(replaced("data/1", written=False)),
        "disagrees|not as the dir",
    ),
    "shared local header": (
        lambda: build(
            [*entries(), Entry("a/data/2", STORAGES["0"], written=False, central={"header": 0})]
        ),
        "overlaps",
    ),
    # sizes, checksums, places
    "size too small": (
        lambda: build(replaced("data/0", central={"size": 12, "packed": 12})),
        "not as the directory",
    ),
    "size too large": (
        lambda: build(replaced("data/0", central={"size": 20, "packed": 20})),
        "not as the directory",
    ),
    "size huge": (
        lambda: build(replaced("data/0", central={"size": 2**31, "packed": 2**31})),
        "cut off",
    ),
    "packed size differs": (lambda: build(replaced("data/0", central={"packed": 8})), "make 16"),
    "other crc": (lambda: build(replaced("data/0", central={"crc": 7})), "CRC"),
    "other crc in front": (
        lambda: build(replaced("data/0", described=False, local={"crc": 7})),
        "CRC",
    ),
    "other size in front": (
        lambda: build(replaced("data/0", described=False, local={"size": 12})),
        "CRC",
    ),
    "size in front of a descriptor": (
        lambda: build(replaced("data/0", local={"size": 12, "packed": 12})),
        "CRC",
    ),
    "other crc behind": (
        lambda: build(replaced("data/0", descriptor=struct.pack("<4s3L", b"PK\7\x08", 7, 16, 16))),
        "follows its data",
    ),
    "no descriptor": (
        lambda: build(replaced("data/0", descriptor=b"")),
        "follows its data|cut off",
    ),
    "descriptor without a signature": (
        lambda: build(replaced("data/0", descriptor=struct.pack("<3L", 7, 16, 16))),
        "follows its data",
    ),
    "descriptor of 24 bytes": (
        lambda: build(replaced("data/0", descriptor=struct.pack("<4sL2Q", b"PK\7\x08", 7, 16, 16))),
        "follows its data",
    ),
    "extra length in front too large": (
        lambda: build(replaced("data/0", local={"extra_length": 4, "extra": b""})),
        "not as the directory|malformed",
    ),
    "extra field in front cut off": (
        lambda: build(replaced("data/0", local={"extra": b"FB\x08\0Z"})),
        "malformed",
    ),
    "extra field twice": (
        lambda: build(replaced("data/0", local={"extra": b"XX\0\0" * 2})),
        "malformed",
    ),
    "extra field of the directory cut off": (
        lambda: build(replaced("data/0", central={"extra": b"X"})),
        "malformed",
    ),
    "header place wrong": (
        lambda: build(replaced("data/0", central={"header": 1})),
        "instead of|overlaps",
    ),
    "header place beyond the file": (
        lambda: build(replaced("version", central={"header": 2**31})),
        "gap",
    ),
    "other name in front": (
        lambda: build(replaced("data/0", local={"name": b"a/data/9"})),
        "what it is",
    ),
    "other flags in front": (
        lambda: build(replaced("data/0", local={"flags": 0x800})),
        "what it is",
    ),
    "other method in front": (lambda: build(replaced("data/0", local={"method": 8})), "what it is"),
    "no local header": (
        lambda: build(replaced("data/0", local={"signature": b"PK\3\5"})),
        "no such entry",
    ),
    # zip64
    "zip64 field nobody asks for": (
        lambda: build(replaced("data/0", central={"extra": WIDE})),
        "zip64 field",
    ),
    "zip64 field missing": (
        lambda: build(replaced("data/0", central={"size": 0xFFFFFFFF})),
        "zip64 field",
    ),
    "zip64 field too short": (
        lambda: build(
            replaced("data/0", central={"size": 0xFFFFFFFF, "packed": 0xFFFFFFFF, "extra": WIDE})
        ),
        "zip64 field",
    ),
    "zip64 field of another size": (
        lambda: build(
            replaced("data/0", central={"size": 0xFFFFFFFF, "extra": struct.pack("<HHQ", 1, 8, 12)})
        ),
        "make 12",
    ),
    "zip64 field in front of another size": (
        lambda: build(replaced("data/0", local={"extra": struct.pack("<HHQ", 1, 8, 12)})),
        "CRC",
    ),
    "zip64 field in front cut off": (
        lambda: build(replaced("data/0", local={"extra": struct.pack("<HHL", 1, 4, 16)})),
        "CRC",
    ),
    "zip64 locator elsewhere": (
        lambda: build(entries(), End(locator={"at": 0})),
        "locator points to byte 0",
    ),
    "zip64 locator of two disks": (lambda: build(entries(), End(locator={"disks": 2})), "volumes"),
    "zip64 count differs": (
        lambda: build(entries(), End(wide={"count": 4, "here": 4})),
        "disagree|says 4",
    ),
    "zip64 start differs": (lambda: build(entries(), End(wide={"start": 0})), "disagree"),
    "zip64 size differs": (lambda: build(entries(), End(wide={"size": 0})), "disagree"),
    "zip64 record longer": (lambda: build(entries(), End(wide={"length": 45})), "malformed"),
    "zip64 record on a disk": (lambda: build(entries(), End(wide={"disk": 1})), "volumes"),
    "no zip64 record": (lambda: build(entries(), End(wide={"signature": b"PK\6\5"})), "malformed"),
    # the directory
    "count too large": (
        lambda: build(entries(), End(zip64=False, end={"count": 9, "here": 9})),
        "says 9",
    ),
    "count too small": (
        lambda: build(entries(), End(zip64=False, end={"count": 1, "here": 1})),
        "says 1",
    ),
    "count on this disk": (lambda: build(entries(), End(zip64=False, end={"here": 1})), "volumes"),
    "disk": (lambda: build(entries(), End(zip64=False, end={"disk": 1})), "volumes"),
    "entry on another disk": (lambda: build(replaced("data/0", central={"disk": 1})), "volume"),
    "directory elsewhere": (
        lambda: build(entries(), End(zip64=False, end={"start": 0})),
        "must end at byte",
    ),
    "directory too long": (
        lambda: build(entries(), End(zip64=False, end={"size": 2**31})),
        "must end at byte",
    ),
    "signature in the directory": (
        lambda: build(replaced("data/0", central={"signature": b"PK\1\3"})),
        "no entry at",
    ),
    "name longer than the directory": (
        lambda: build(replaced("version", central={"name_length": 9999})),
        "cut off",
    ),
    "comment of an entry": (
        lambda: build(replaced("data/0", central={"comment": b"hi"})),
        "comment",
    ),
    # encryption, compression
    "deflated pickle": (
        lambda: build(replaced("data.pkl", central={"method": 8}, local={"method": 8})),
        "is deflated",
    ),
    "deflated storage": (
        lambda: build(replaced("data/0", central={"method": 8}, local={"method": 8})),
        "is deflated",
    ),
    "unknown method": (
        lambda: build(replaced("data/0", central={"method": 77}, local={"method": 77})),
        "method 77",
    ),
    "encrypted": (
        lambda: build(replaced("data/0", central={"flags": 0x809}, local={"flags": 0x809})),
        "is encrypted",
    ),
    "encrypted in front": (lambda: build(replaced("data/0", local={"flags": 0x809})), "what it is"),
    "strongly encrypted": (
        lambda: build(replaced("data/0", central={"flags": 0x848}, local={"flags": 0x848})),
        "flags",
    ),
    # names
    "two roots": (
        lambda: build([*entries(), Entry("b/data/2", b"x")]),
        "does not lie in the folder",
    ),
    "root that begins alike": (
        lambda: build([*entries(), Entry("ab/data/2", b"x")]),
        "does not lie",
    ),
    "no root": (lambda: build([Entry("data.pkl", PICKLE)]), "has the name 'data.pkl'"),
    "up": (lambda: build([*entries(), Entry("a/../data.pkl", b"x")]), "has the name"),
    "up, root": (
        lambda: build(
            archive(PICKLE, STORAGES, root=".."),
        ),
        "has the name",
    ),
    "here": (lambda: build([*entries(), Entry("a/./x", b"x")]), "has the name"),
    "absolute": (lambda: build(archive(PICKLE, STORAGES, root="")), "has the name"),
    "double slash": (lambda: build([*entries(), Entry("a//x", b"x")]), "has the name"),
    "backslash": (lambda: build([*entries(), Entry("a/b\\c", b"x")]), "has the name"),
    "drive": (lambda: build(archive(PICKLE, STORAGES, root="C:")), "has the name"),
    "NUL": (lambda: build([*entries(), Entry("a/x\0y", b"x")]), "has the name"),
    "control character": (lambda: build([*entries(), Entry("a/x\x1b[0m", b"x")]), r"\\x1b"),
    "folder": (lambda: build([*entries(), Entry("a/x/", b"")]), "has the name"),
    "no UTF-8": (lambda: build([*entries(), Entry(b"a/\xff", b"x")]), "not UTF-8"),
    "empty name": (lambda: build([*entries(), Entry("", b"x")]), "does not lie"),
    "empty archive": (lambda: build([], End(zip64=False)), "empty archive"),
    "no data.pkl": (lambda: build(entries()[1:]), "no data.pkl"),
    # byte order
    "byte order middle": (lambda: build(replaced("byteorder", data=b"middle")), "byte order"),
    "byte order and a line": (lambda: build(replaced("byteorder", data=b"little\n")), "byte order"),
    "byte order of a megabyte": (
        lambda: build(replaced("byteorder", data=b"little" * 200_000)),
        "byte order",
    ),
    "byte order empty": (lambda: build(replaced("byteorder", data=b"")), "byte order"),
}


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_in_words(read, name, mapped):
    make, words = LIES[name]
    with pytest.raises(ContainerError, match=words) as caught:
        read(make(), mapped=mapped)
    assert caught.value.location.file is not None


@pytest.mark.parametrize("key", ["00", "01", "-1", "x", "0x1", "1" * 30, "\u0660"])
def test_an_entry_whose_key_is_no_number_is_no_storage(tmp_path, read, key):
    data = build([*entries(), Entry(f"a/data/{key}", b"x")])
    assert read(data) == GOOD
    with PickleFile.open(tmp_path / "x.pt") as file:
        assert set(file.storages) == {"0", "1"}


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["a/data.pkl", "a/constants.pkl", "a/code/x.py"], "TorchScript"),
        (["a/data.pkl", "a/bytecode.pkl"], "TorchScript"),
        (["a/archive_format", "a/models/model.json", "a/data/weights/w_0"], "exported program"),
        (["serialized_exported_program.json", "serialized_state_dict.pt"], "exported program"),
        (["a/.data/extern_modules", "a/x.pkl"], "torch.package"),
        (["x.npy", "y.npy"], "NumPy .npz"),
        (["config.json", "metadata.json", "model.weights.h5"], "Keras"),
        (["[Content_Types].xml", "word/document.xml"], "Office"),
        (["torch-2.0.dist-info/METADATA"], "package of programs"),
        (["model.safetensors"], "archive of checkpoints"),
    ],
)
def test_other_archives_are_named(read, names, words):
    with pytest.raises(ContainerError, match=words):
        read(build([Entry(name, b"x") for name in names]))


def test_a_deflated_torchscript_program_is_named_for_what_it_is(read):
    deflated = {"central": {"method": 8}, "local": {"method": 8}}
    with pytest.raises(ContainerError, match="TorchScript"):
        read(
            build(
                [
                    Entry("a/data.pkl", b"x"),
                    Entry("a/code/x.py", b"x", **deflated),
                    Entry("a/constants.pkl", b"x"),
                ]
            )
        )


def test_the_number_of_entries_is_limited(read):
    data = build(entries())
    with pytest.raises(LimitError) as caught:
        read(data, limits=Limits(entries=3))
    assert caught.value.limit == "entries"
    with pytest.raises(LimitError) as caught:
        read(data, limits=Limits(directory_bytes=100))
    assert caught.value.limit == "directory_bytes"


def test_a_file_cut_at_any_byte_is_refused(tmp_path):
    data = build(entries())
    path = tmp_path / "x.pt"
    for end in range(len(data)):
        path.write_bytes(data[:end])
        with pytest.raises(ContainerError):
            PickleFile.open(path)


def test_a_flipped_bit_is_refused_or_changes_only_values_checksums_cover(tmp_path):
    """Every bit of the file: what opens, opens with the same structure."""
    data = build(entries())
    path = tmp_path / "x.pt"
    opened = 0
    for at in range(0, len(data) * 8, 7):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        try:
            with PickleFile.open(path, mapped=False) as file:
                names = {name: part.shape for name, part in file.tensors()}
                faults = file.verify()
        except AoserialError as error:
            assert isinstance(error, ContainerError | IntegrityError | PickleError)  # noqa: PT017
            continue
        opened += 1
        assert names == {"a": (4,), "b": (4,)}
        # versions, times, attributes and padding mean nothing; the rest has a checksum
        if flipped.find(STORAGES["0"]) < 0 or flipped.find(STORAGES["1"]) < 0:
            assert faults
    assert opened > 50


def test_whatever_is_accepted_torch_and_python_read_the_same(tmp_path):
    """Pairs of lies that may cancel out: nobody else may see another archive in what we accept."""
    values = {
        "flags": (0, 0x8, 0x808, 0x800),
        "crc": (0, 7),
        "size": (0, 12, 16),
        "packed": (0, 16),
        "header": (0, 64),
        "version": (20,),
        "time": (1,),
        "extra": (b"", b"XX\0\0"),
        "method": (0,),
    }
    path = tmp_path / "x.pt"
    accepted = 0
    for place in ("local", "central"):
        for field, choices in values.items():
            for value in choices:
                for described in (True, False):
                    if place == "local" and field == "header":
                        continue
                    data = build(replaced("data/0", described=described, **{place: {field: value}}))
                    path.write_bytes(data)
                    try:
                        with PickleFile.open(path) as file:
                            found = {name: part.read().tolist() for name, part in file.tensors()}
                    except ContainerError:
                        continue
                    accepted += 1
                    loaded = torch.load(path, weights_only=True)
                    assert found == {name: each.tolist() for name, each in loaded.items()} == GOOD
                    assert zipfile.ZipFile(path).read("a/data/0") == STORAGES["0"]
    assert accepted > 10


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts open files there")
def test_the_file_is_closed_when_opening_fails(tmp_path):
    path = tmp_path / "x.pt"
    path.write_bytes(b"PK\5\6" + bytes(18))
    before = os.listdir("/proc/self/fd")
    with pytest.raises(ContainerError):
        PickleFile.open(path)
    assert len(os.listdir("/proc/self/fd")) == len(before)
