"""The tar container of 2016: nobody writes it any more, and torch still reads it to compare."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile

import pytest
import torch
from support.containers import FLOATS, tarred
from support.pickle_assembler import (
    call,
    dict_,
    global_,
    integer,
    persid,
    stream,
    text,
    tuple_,
)

from aoserial.errors import AoserialError, BoundsError, ContainerError, LimitError, PickleError
from aoserial.storage.pickle import Name, PickleFile, TypedStorage
from aoserial.storage.pickle.tar import BLOCK


def described(key: object, where: object, module: str, name: str) -> bytes:
    first = integer(key) if isinstance(key, int) else text(key)
    second = integer(where) if isinstance(where, int) else text(where)
    return stream(tuple_(first, second, global_(module, name)))


def storages(
    count: int = 4, *, number: int = 1, views: object = (), cls: str = "FloatStorage"
) -> bytes:
    body = pickle.dumps(number, 2) + described(7, "cpu", "torch", cls)
    return body + struct.pack("<q", count) + FLOATS + pickle.dumps(list(views), 2)


def tensors(
    *, key: int = 9, held: int = 7, size=(2, 2), stride=(2, 1), offset: int = 0, number: int = 1
) -> bytes:
    body = pickle.dumps(number, 2) + described(key, held, "torch", "FloatTensor")
    body += struct.pack("<i4x", len(size))
    return body + struct.pack(f"<{len(size)}q{len(stride)}qq", *size, *stride, offset)


TREE = stream(dict_(text("a"), text("9") + b"Q"))
GOOD = {"stream": TREE, "storages": storages(), "tensors": tensors()}


@pytest.fixture
def read(tmp_path):
    def read(data: bytes | None = None, **changes) -> PickleFile:
        path = tmp_path / "x.pt"
        path.write_bytes(tarred(**(GOOD | changes)) if data is None else data)
        return PickleFile.open(path)

    return read


def test_a_tensor_in_a_storage(read, tmp_path):
    file = read()
    assert file.container == "tar"
    assert file.tree["a"].read().tolist() == [[1, 2], [3, 4]]
    with (tmp_path / "x.pt").open("rb") as raw:
        assert torch.load(raw, weights_only=False)["a"].tolist() == [[1, 2], [3, 4]]


def test_views_and_storages_by_themselves(read):
    body = stream(tuple_(text("8") + b"Q", text("9") + b"Q", persid("7")))
    tree = read(
        stream=body,
        storages=storages(views=[(8, 7, 1, 2)]),
        tensors=tensors(held=8, size=(2,), stride=(1,)),
    ).tree
    assert isinstance(tree[0], TypedStorage)
    assert tree[0].part.read().tolist() == [2, 3]
    assert tree[1].read().tolist() == [2, 3]
    assert tree[1].storage is tree[2].storage


def test_a_module_keeps_its_class_and_not_its_source(read):
    held = tuple_(global_("acme", "Net"), text("f"), text("source")) + b"Q"
    assert read(stream=stream(call(held))).tree.function == Name("acme", "Net")


def test_members_named_with_a_dot(read):
    def dotted(info: tarfile.TarInfo) -> None:
        info.name = f"./{info.name}"

    assert read(tarred(**GOOD, edit=dotted)).tree["a"].shape == (2, 2)


LIES = {
    "count differs": ({"storages": storages(5)}, AoserialError, "."),
    "count huge": ({"storages": storages(2**62)}, BoundsError, "reaches out"),
    "count negative": ({"storages": storages(-1)}, BoundsError, "reaches out"),
    "no dtype": ({"storages": storages(cls="Storage")}, ContainerError, "no dtype"),
    "number too large": ({"storages": storages(number=2)}, AoserialError, "."),
    "number negative": ({"storages": storages(number=-1)}, ContainerError, "a count is -1"),
    "number that goes on outside": ({"storages": pickle.dumps(1, 0)[:-1]}, PickleError, "STOP"),
    "number of text": ({"storages": pickle.dumps("1", 2)}, ContainerError, "a count is '1'"),
    "view outside": ({"storages": storages(views=[(8, 7, 3, 2)])}, BoundsError, "view 8"),
    "view of three": ({"storages": storages(views=[(8, 7, 3)])}, ContainerError, "four numbers"),
    "view of nothing": ({"storages": storages(views=[(8, 5, 0, 1)])}, PickleError, "no storage"),
    "views in a dict": (
        {"storages": storages()[: -len(pickle.dumps([], 2))] + pickle.dumps({}, 2)},
        ContainerError,
        "no list",
    ),
    "bytes behind the storages": (
        {"storages": storages() + b"x"},
        ContainerError,
        "1 bytes follow",
    ),
    "bytes behind the tensors": ({"tensors": tensors() + b"x"}, ContainerError, "1 bytes follow"),
    "tensor outside": ({"tensors": tensors(stride=(2, 2))}, BoundsError, "does not lie inside"),
    "tensor in nothing": ({"tensors": tensors(held=5)}, PickleError, "no storage or tensor 5"),
    "tensor of the storage's key": ({"tensors": tensors(key=7)}, ContainerError, "two things"),
    "tensor cut off": ({"tensors": tensors()[:-1]}, ContainerError, "cut off"),
    "tensor of rank 99": (
        {"tensors": tensors(size=(1,) * 99, stride=(1,) * 99)},
        LimitError,
        "dimensions",
    ),
    "key that is not there": (
        {"stream": stream(text("5") + b"Q")},
        PickleError,
        "no storage or tensor 5",
    ),
    "bytes behind the pickle": ({"stream": TREE + b"N"}, PickleError, "follow its STOP"),
    "another member": ({"more": {"evil": b"x"}}, ContainerError, "member 'evil'"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_in_words(read, name):
    changes, error, words = LIES[name]
    with pytest.raises(error, match=words):
        read(**changes)


KINDS = {
    "a link": tarfile.SYMTYPE,
    "a hard link": tarfile.LNKTYPE,
    "a device": tarfile.CHRTYPE,
    "a folder": tarfile.DIRTYPE,
    "a FIFO": tarfile.FIFOTYPE,
}


@pytest.mark.parametrize("kind", KINDS)
def test_members_that_are_no_files_are_refused(read, kind):
    def edit(info: tarfile.TarInfo) -> None:
        if info.name == "tensors":
            info.type = KINDS[kind]
            info.linkname = "/etc/passwd"

    with pytest.raises(ContainerError):
        read(tarred(**GOOD, edit=edit))


@pytest.mark.parametrize("name", ["../pickle", "/pickle", "x" * 300])
def test_members_of_other_names_are_refused(read, name):
    def edit(info: tarfile.TarInfo) -> None:
        if info.name == "pickle":
            info.name = name

    with pytest.raises(ContainerError):
        read(tarred(**GOOD, edit=edit))


def test_a_member_twice_or_missing_is_refused(read):
    good = tarred(**GOOD)
    with pytest.raises(ContainerError, match="member 'sys_info'"):
        read(good.rstrip(b"\0") + bytes(-len(good.rstrip(b"\0")) % BLOCK) + good)
    with pytest.raises(ContainerError, match="without the member"):
        read(good[: 3 * BLOCK] + bytes(2 * BLOCK))


def test_a_wrong_checksum_is_refused(read):
    data = bytearray(tarred(**GOOD))
    data[data.index(b"sys_info")] ^= 1
    with pytest.raises(ContainerError):
        read(bytes(data))


def test_something_behind_the_end_is_refused(read):
    with pytest.raises(ContainerError, match="something follows its end"):
        read(tarred(**GOOD) + b"x")


def test_other_tars_are_named(read):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:") as tar:
        info = tarfile.TarInfo("readme.txt")
        tar.addfile(info, io.BytesIO())
    with pytest.raises(
        ContainerError, match="not one of torch.save: it has the member 'readme.txt'"
    ):
        read(out.getvalue())


def test_a_file_cut_at_any_block_is_refused(read):
    data = tarred(**GOOD)
    end = len(data.rstrip(b"\0"))
    for size in range(300, end, 97):
        with pytest.raises(AoserialError):
            read(data[:size])
