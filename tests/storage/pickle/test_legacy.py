"""The legacy container: five pickles and the storages after them."""

from __future__ import annotations

import io
import pickle
import struct

import pytest
import torch
from support import pickle_assembler as asm
from support.containers import FLOATS, legacy
from support.pickle_assembler import (
    NONE,
    call,
    dict_,
    get,
    global_,
    integer,
    list_,
    put,
    stream,
    tensor,
    text,
    tuple_,
)
from support.tensors import same_bytes

from aoserial.errors import AoserialError, BoundsError, ContainerError, LimitError, PickleError
from aoserial.storage.pickle import Limits, Name, PickleFile


def id_of(key: str, count: int, view: bytes = NONE, cls: str = "FloatStorage") -> bytes:
    items = (text("storage"), global_("torch", cls), text(key), text("cpu"), integer(count), view)
    return tuple_(*items) + b"Q"


ONE = stream(dict_(text("a"), tensor(id_of("94", 4))))


@pytest.fixture
def read(tmp_path):
    def read(data: bytes, **options) -> PickleFile:
        (tmp_path / "x.pt").write_bytes(data)
        return PickleFile.open(tmp_path / "x.pt", **options)

    return read


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_what_torch_writes(read, protocol, mapped):
    shared = torch.arange(6.0)
    state = {
        "a": shared,
        "row": shared[2:4],
        "h": torch.ones(3, dtype=torch.half),
        "e": torch.empty(0),
    }
    out = io.BytesIO()
    torch.save(state, out, _use_new_zipfile_serialization=False, pickle_protocol=protocol)
    with read(out.getvalue(), mapped=mapped) as file:
        assert file.container == "legacy"
        assert file.tree.keys() == state.keys()
        for name, part in file.tree.items():
            assert same_bytes(part.read(), state[name])
        assert file.tree["a"].storage is file.tree["row"].storage
        assert file.verify() == []


def test_a_pickle_larger_than_the_first_look(read):
    state = {f"layers.{number}.weight": torch.full((2,), float(number)) for number in range(2000)}
    out = io.BytesIO()
    torch.save(state, out, _use_new_zipfile_serialization=False)
    with read(out.getvalue()) as file:
        assert len(file.tree) == 2000
        assert file.tree["layers.1999.weight"].read().tolist() == [1999, 1999]


@pytest.mark.parametrize("size", range(64 * 2**10 - 24, 64 * 2**10))
def test_a_first_look_may_end_within_any_opcode(read, size):
    body = text("x" * size) + put(1) + b"0" + list_(asm.ext(7), get(1), asm.ext(2**24, 4))
    assert len(read(legacy(stream(body))).tree) == 3


def test_the_assembled_one_is_what_torch_reads(read):
    data = legacy(ONE, {"94": (4, FLOATS)})
    assert torch.load(io.BytesIO(data), weights_only=True)["a"].tolist() == [1, 2, 3, 4]
    assert read(data).tree["a"].read().tolist() == [1, 2, 3, 4]


def test_misaligned_storages_are_copied(read):
    # the first storage begins wherever the pickles end; one of these is no multiple of four
    for padding in range(4):
        body = stream(list_(text("x" * padding), tensor(id_of("1", 4))))
        part = read(legacy(body, {"1": (4, FLOATS)})).tree[1]
        found = part.read()
        assert found.tolist() == [1, 2, 3, 4]
        assert found.data_ptr() % 4 == 0


def test_views_of_storages(read):
    view = tuple_(text("95"), integer(1), integer(2))
    body = stream(tensor(id_of("94", 4, view), size=(2,)))
    data = legacy(body, {"94": (4, FLOATS)})
    assert read(data).tree.read().tolist() == [2, 3]
    assert torch.load(io.BytesIO(data), weights_only=True).tolist() == [2, 3]


@pytest.mark.parametrize(("offset", "count"), [(3, 2), (0, 5), (-1, 2), (1, 2**62)])
def test_a_view_outside_its_storage_is_refused(read, offset, count):
    view = tuple_(text("95"), integer(offset), integer(count))
    with pytest.raises(BoundsError, match="lies outside"):
        read(legacy(stream(tensor(id_of("94", 4, view), size=(1,))), {"94": (4, FLOATS)}))


def test_a_tensor_outside_a_view_is_refused(read):
    view = tuple_(text("95"), integer(1), integer(2))
    with pytest.raises(BoundsError):
        read(legacy(stream(tensor(id_of("94", 4, view), size=(3,))), {"94": (4, FLOATS)}))


def test_a_module_keeps_its_class_and_not_its_source(read):
    held = tuple_(text("module"), global_("acme.nets", "Net"), text("nets.py"), text("class …"))
    tree = read(legacy(stream(call(held + b"Q", NONE)))).tree
    assert tree.function == Name("acme.nets", "Net")


def facts(**changes: object) -> dict[str, object]:
    return {"protocol_version": 1001, "little_endian": True, "type_sizes": {}} | changes


LIES = {
    "other protocol": ({"protocol": 1000}, ContainerError, "protocol is 1000"),
    "protocol of text": ({"protocol": "1001"}, ContainerError, "protocol is '1001'"),
    "big-endian": ({"facts": facts(little_endian=False)}, ContainerError, "little-endian"),
    "facts of text": ({"facts": "little"}, ContainerError, "third pickle"),
    "a key missing": ({"keys": []}, ContainerError, "list of 0 names others"),
    "a key more": ({"keys": ["94", "95"]}, ContainerError, "names others"),
    "a key twice": ({"keys": ["94", "94"]}, ContainerError, "names others"),
    "another key": ({"keys": ["95"]}, ContainerError, "names others"),
    "keys of ints": ({"keys": [94]}, ContainerError, "not a list of the keys"),
    "keys in a dict": ({"keys": {"94": 1}}, ContainerError, "not a list of the keys"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_refused_in_words(read, name):
    changes, error, words = LIES[name]
    with pytest.raises(error, match=words):
        read(legacy(ONE, {"94": (4, FLOATS)}, **changes))


@pytest.mark.parametrize("count", [3, 5, -1, 2**63 - 1, -(2**63)])
def test_a_count_that_differs_is_refused(read, count):
    with pytest.raises(BoundsError, match="but the pickle says 4"):
        read(legacy(ONE, {"94": (count, FLOATS)}))


def test_storages_that_are_two_things_are_refused(read):
    body = stream(list_(tensor(id_of("94", 4)), tensor(id_of("94", 2), size=(2,))))
    with pytest.raises(BoundsError, match="in another"):
        read(legacy(body, {"94": (4, FLOATS)}))


def test_bytes_behind_are_refused(read):
    with pytest.raises(ContainerError, match="1 bytes follow its last storage"):
        read(legacy(ONE, {"94": (4, FLOATS)}) + b"\0")


def test_another_magic_number_is_no_legacy_file(read):
    with pytest.raises(ContainerError, match="not one that torch.save wrote"):
        read(legacy(ONE, {"94": (4, FLOATS)}, magic=0x1950))
    with pytest.raises(ContainerError, match="not one that torch.save wrote"):
        read(pickle.dumps({"a": 1}))


def test_a_file_cut_at_any_byte_is_refused(read):
    data = legacy(ONE, {"94": (4, FLOATS)})
    for end in range(len(data)):
        with pytest.raises((ContainerError, PickleError)):
            read(data[:end])


def test_the_pickle_is_limited_and_not_the_file(read):
    values = [f"{number:1000}" for number in range(1000)]
    data = legacy(pickle.dumps(values, 2))
    with pytest.raises(LimitError) as caught:
        read(data, limits=Limits(pickle_bytes=200_000))
    assert caught.value.limit == "pickle_bytes"
    large = legacy(stream(tensor(id_of("1", 2**19))), {"1": (2**19, bytes(2**21))})
    assert read(large, limits=Limits(pickle_bytes=200_000)).tree.shape == (4,)


def test_any_flipped_byte_is_refused_or_changes_only_values(read):
    data = legacy(ONE, {"94": (4, FLOATS)})
    for at in range(len(data)):
        flipped = bytearray(data)
        flipped[at] ^= 0x11
        try:
            file = read(bytes(flipped))
            for _, part in file.tensors():
                part.read()
        except AoserialError:
            continue


def test_counts_are_little_endian(read):
    data = legacy(ONE, {"94": (4, FLOATS)})
    assert struct.pack("<q", 4) + FLOATS == data[-24:]
