"""Trees of values as pickles: what is written is read as the same, and as Python means it."""

from __future__ import annotations

import collections
import functools
import io
import pickle
import pickletools
import struct
import sys
from collections.abc import Iterator

import pytest
import torch
from support import pickle_assembler as asm
from support.trees import assert_same

from aoserial.errors import AoserialError, UnsupportedTensorError
from aoserial.storage.part import TensorPart
from aoserial.storage.pickle import (
    ArrayPart,
    EnumValue,
    ExtensionCode,
    Key,
    Limits,
    MemoryStorage,
    Name,
    ObjectValue,
    ParameterValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    Storage,
    StoragePart,
    TensorSubclass,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
    emit,
)
from aoserial.storage.pickle.interpreter import interpret_all
from aoserial.storage.pickle.recognise import Recogniser
from aoserial.storage.pickle.references import Storages, find_in

LIMITS = Limits()


def floats(*values: float) -> MemoryStorage:
    return MemoryStorage(torch.tensor(values, dtype=torch.float32).untyped_storage())


def part(storage: Storage | None = None) -> StoragePart:
    return StoragePart("float32", (2, 2), (2, 1), 0, storage or floats(1, 2, 3, 4))


def read(stream: bytes, storages: dict[str, Storage] | None = None) -> object:
    resolve = Storages(find_in({"0": floats(1, 2, 3, 4)} if storages is None else storages))
    return interpret_all(stream, Recogniser(resolve, LIMITS), LIMITS).root


def written(tree: object) -> bytes:
    """The pickle, which the standard library's disassembler finds nothing wrong with."""
    stream = emit(tree).pickle
    pickletools.dis(stream, out=io.StringIO())
    return stream


def again(tree: object) -> object:
    emitted = emit(tree)
    pickletools.dis(emitted.pickle, out=io.StringIO())
    storages = {}
    for record in emitted.records:
        (data,) = (
            record.storage.chunks(record.start, record.nbytes, 2**20) if record.nbytes else (b"",)
        )
        kept = bytearray(data) or bytearray(1)
        storage = MemoryStorage(torch.frombuffer(kept, dtype=torch.uint8).untyped_storage())
        storage.nbytes = record.nbytes
        storages[record.key] = storage
    return read(emitted.pickle, storages)


def assert_kept(tree: object) -> None:
    assert_same(tree, again(tree))


# -- plain values ---------------------------------------------------------------------------------

SCALARS = [
    None,
    True,
    False,
    *(sign * 2**bits + more for bits in (0, 7, 8, 15, 16, 31, 32, 63, 64, 1000)
      for sign in (1, -1) for more in (-1, 0, 1)),
    0.0,
    -0.0,
    0.1,
    float("inf"),
    float("nan"),
    struct.unpack(">d", b"\x7f\xf8\0\0\0\0\xab\xcd")[0],
    1 - 2j,
    complex("nan-infj"),
    "",
    "x",
    "ü\n\0\u2028😀",
    "\ud800 alone",
    "a" * 300,
    b"",
    b"\0\xff",
    bytes(range(256)),
    bytearray(),
    bytearray(b"a\xff"),
]  # fmt: skip


@pytest.mark.parametrize(
    "value", SCALARS, ids=lambda value: f"{type(value).__name__} {value!r:.20}"
)
def test_scalars(value):
    assert_kept(value)
    assert_kept([value, {"k": (value,)}])
    assert repr(pickle.loads(written(value))) == repr(value)


CONTAINERS = [
    [],
    (),
    {},
    set(),
    frozenset(),
    (1,),
    (1, "a"),
    (1, "a", None),
    (1, 2, 3, 4),
    ("a", "b", "c", "d", [1]),
    [[1], (2, [3]), {"k": {"k": []}}],
    {"a": 1, 2: "b", None: 3, True: 4, b"b": 5, 1.5: 6},
    {3, 1, 2},
    {"b", "a", b"c", None, 2},
    frozenset({"x", "y"}),
    list(range(2500)),
    {str(at): at for at in range(2001)},
    {at: str(at) for at in range(-3, 3)},
]


@pytest.mark.parametrize("value", CONTAINERS, ids=lambda value: type(value).__name__)
def test_containers(value):
    assert_kept(value)
    assert pickle.loads(written(value)) == value


def test_keys_of_other_kinds():
    key = Key((1, ("a", Name("acme", "Mode"))))
    assert_kept({key: 1, Key(2**70): 2, Key(EnumValue(Name("acme", "Mode"), "x")): [key.value]})
    assert_kept({Key((3, 1)), Key((1, 2)), "plain", Key((2, 2))})
    assert pickle.loads(written({Key((1, 2)): 3})) == {(1, 2): 3}


def test_sets_are_written_in_the_same_order_whatever_their_hashes_are():
    names = [f"name {at}" for at in range(100)]
    keys = [Key((at, str(at))) for at in range(100)]
    backwards = names[::-1], keys[::-1]
    one = written([set(names), set(keys), frozenset(names)])
    assert one == written([set(backwards[0]), set(backwards[1]), frozenset(backwards[0])])


def test_a_key_of_a_key_is_refused():
    with pytest.raises(UnsupportedTensorError, match="key of a key"):
        emit({Key(Key(1)): 2})


def test_an_ordered_dict_with_attributes():
    state = StateDict({"w": 1})
    state.attributes = {"_metadata": {"": {"version": 1}}}
    assert_kept({"a": state, "b": StateDict(), "again": state})
    found = pickle.loads(written(state))
    assert type(found) is collections.OrderedDict
    assert found._metadata == {"": {"version": 1}}


def test_bytes_that_are_too_long_for_a_text_are_bytes(monkeypatch):
    monkeypatch.setattr("aoserial.storage.pickle.writing.opcodes._LONGEST_TEXT", 100)
    tree = [b"\xff" * 50, b"\xff" * 51, bytearray(b"\xff" * 51)]
    assert b"B" + struct.pack("<I", 51) in written(tree)
    assert_kept(tree)
    assert pickle.loads(written(tree)) == tree


# -- identity -------------------------------------------------------------------------------------


def test_shared_objects_stay_shared_and_equal_ones_apart():
    one, other = [1], [1]
    pair = (one, {})
    assert_kept([one, one, other, pair, pair, (one, {})])
    found = pickle.loads(written([one, one, other]))
    assert found[0] is found[1] is not found[2]


def cycles() -> Iterator[object]:
    loop: list = []
    loop.append(loop)
    yield loop
    mapping: dict = {"a": {}}
    mapping["a"]["b"] = (mapping, [mapping])
    yield mapping
    # a tuple, and an object, that are made of something which holds them
    inside: list = []
    closed = (inside, 1)
    inside.append(closed)
    yield closed
    yield inside
    more: list = []
    long = (more, 1, 2, 3)
    more += [long, long]
    yield {"x": long, "y": more}
    for kind in ("reduce", "newobj", "obj", "inst", "newobj_ex"):
        held: list = []
        made = ObjectValue(kind, Name("acme", "Node"), (held,), {} if kind == "newobj_ex" else None)
        made.states = ({"next": made},)
        made.items, made.pairs = [made, 1], [("k", made)]
        held.append(made)
        yield made
        yield [held, made]
    state: dict = {}
    wrapper = wrapped(state)
    state["parent"] = wrapper
    yield {"w": wrapper, "state": state}
    members: dict = {}
    sets = {"s": {Key((members,)), "x"}}
    members.update(sets)
    yield members


def wrapped(state: object = None) -> WrapperSubclass:
    made = WrapperSubclass(
        cls=Name("gone", "Tensor"),
        dtype="bfloat16",
        shape=(2, 2),
        stride=(2, 1),
        storage_offset=0,
        layout="strided",
        device=TorchDevice("cuda", 1),
        requires_grad=True,
    )
    made.state = state
    return made


@pytest.mark.parametrize("tree", list(cycles()), ids=lambda tree: type(tree).__name__)
def test_cycles_close(tree):
    assert_kept(tree)


def test_cycles_close_for_python_too():
    inside: list = []
    closed = (inside, 1)
    inside.append(closed)
    found = pickle.loads(written(closed))
    assert found[0][0] is found


def test_what_is_part_of_itself_is_refused():
    wrapper = wrapped()
    wrapper.state = wrapper
    with pytest.raises(UnsupportedTensorError, match="part of itself") as caught:
        emit({"layer": wrapper})
    assert caught.value.location.name == "layer"


@pytest.mark.parametrize(
    "wrap",
    [
        lambda value: [value],
        lambda value: (value,),
        lambda value: (1, 2, 3, value),
        lambda value: {"k": value},
        lambda value: ObjectValue("reduce", Name("a", "b"), (value, 1), None),
        wrapped,
        lambda value: {Key((value,)): 1},
    ],
)
def test_what_is_deep_needs_no_recursion(wrap):
    tree: object = "bottom"
    for _ in range(LIMITS.depth // 3):
        tree = wrap(tree)
    assert sys.getrecursionlimit() <= 3000
    assert_same(tree, again(tree))


def test_what_is_shared_many_times_over_is_written_once():
    tree: object = (1, "x")
    for _ in range(200):
        tree = (tree, tree)
    assert len(written(tree)) < 20_000


# -- objects --------------------------------------------------------------------------------------


def unknown(kind: str, **fields: object) -> ObjectValue:
    made = ObjectValue(kind, Name("acme.models", "Config"), (1, "x"), None)
    for name, value in fields.items():
        setattr(made, name, value)
    return made


OBJECTS = {
    "function": Name("torch.nn.functional", "relu"),
    "name in a class": Name("acme", "Outer.Inner.Mode"),
    "name of strange parts": Name("acme", "f.<locals>.g"),
    "dtype": TorchDtype("float8_e4m3fn"),
    "layout": TorchLayout("sparse_coo"),
    "devices": [TorchDevice(kind, at) for kind, at in (("cpu", None), ("cuda", 1), ("cpu", None))],
    "sizes": [TorchSize((2, 3)), TorchSize(()), TorchSize((1,) * 8)],
    "enums": [EnumValue(Name("acme", "Mode"), 7), EnumValue(Name("acme", "A.Mode"), "x")],
    "reduce": unknown("reduce"),
    "newobj": unknown("newobj"),
    "inst": unknown("inst"),
    "obj": unknown("obj"),
    "newobj_ex": unknown("newobj_ex", keywords={"a": [1]}),
    "states": unknown("newobj", states=({"a": 1}, ({"b": 2}, {"slot": 3}), None, [4])),
    "items": unknown("reduce", items=[1, [2]], pairs=[("a", 1), ((1, 2), [])], states=({},)),
    "many items": unknown("reduce", items=[7] * 1500, pairs=[(at, at) for at in range(1100)]),
    "no items, but asked for": ObjectValue("reduce", Name("acme", "Mode"), ("x",), None),
    "arguments that are no tuple": ObjectValue("reduce", Name("a", "b"), unknown("newobj"), None),
    "function that is no name": ObjectValue("reduce", unknown("reduce"), (), None),
    "partial": Partial(Name("acme", "f"), (1, [2]), {"k": 3}, None),
    "partial with attributes": Partial(unknown("reduce"), (), {}, {"note": "x"}),
    "ours": Rebuilt("aoserial.Int4Tensor", 2, ({"qdata": [1]}, None)),
    "extensions": [ExtensionCode(code) for code in (1, 255, 256, 65535, 65536, 2**31 - 1)],
    "references": [Reference("x"), Reference(("module", 1)), Reference(None), Reference([1, 2])],
    "unknown storage": Reference(("storage", Name("acme", "Storage"), "0", "cpu", 4)),
    "array": ArrayPart("float32", (2, 1), bytes(range(8))),
    "array of NumPy 2": ArrayPart("bool", (3,), b"\0\1\1", fortran=True),
    "hostile names": [
        Name("a\nb", "c"), Name("a", "b\nR."), Name("", ""), Name("\ud800", "x"), Name("a", "b\r"),
        Name("os\nsystem\n(S'x'\ntR.", "x"), Name("a b", "c.d e"), Name("a", ".."),
    ],
    "hostile texts": ["\n.", "(lp0\n.", "\x80\x02.", {"a\n.": 1}],
    "hostile class": ObjectValue("inst", Name("a\nb\n.", "c"), (1,), None),
    "hostile dtype": TorchDtype("float32\n(S'x'\ntR."),
}  # fmt: skip
OBJECTS["no items, but asked for"].items = []
OBJECTS["array of NumPy 2"].core = "numpy._core"

# Not read as what they are, but as what they mean: a class by OBJ; a name that is no dtype
CHANGED = {"hostile class", "hostile dtype"}


@pytest.mark.parametrize("name", sorted(OBJECTS.keys() - CHANGED))
def test_objects(name):
    tree = OBJECTS[name]
    assert_kept({"a": tree, "b": [tree]})


def test_a_name_cannot_bring_opcodes_along():
    assert again(OBJECTS["hostile dtype"]) == Name("torch", "float32\n(S'x'\ntR.")
    found = again(OBJECTS["hostile class"])
    assert (found.kind, found.function, found.arguments) == ("obj", Name("a\nb\n.", "c"), (1,))


def test_names_beyond_ascii():
    # the disassembler does not know that pickle reads them as UTF-8
    assert read(emit([Name("ü", "ä.ö")]).pickle) == [Name("ü", "ä.ö")]


def test_python_finds_the_names():
    tree = [
        Name("collections", "OrderedDict.fromkeys"),
        Name("builtins", "len"),
        Name("io", "StringIO"),
        Name("collections", "OrderedDict.fromkeys"),
    ]
    made = collections.OrderedDict.fromkeys
    assert pickle.loads(written(tree)) == [made, len, io.StringIO, made]


def test_python_makes_the_objects():
    fraction = ObjectValue("reduce", Name("fractions", "Fraction"), ("1/3",), None)
    factory = (Name("builtins", "list"),)
    default = ObjectValue("reduce", Name("collections", "defaultdict"), factory, None)
    default.pairs = [("a", [1])]
    counted = ObjectValue("newobj_ex", Name("collections", "Counter"), (), {})
    counted.pairs = [("a", 2)]
    tree = [fraction, default, counted, Partial(Name("builtins", "int"), ("7",), {"base": 8}, None)]
    found = pickle.loads(written(tree))
    assert str(found[0]) == "1/3"
    assert found[1] == {"a": [1]}
    assert found[1].default_factory is list
    assert (type(found[2]), found[2]["a"]) == (collections.Counter, 2)
    assert isinstance(found[3], functools.partial)
    assert found[3]() == 7


@pytest.mark.parametrize(
    "tree",
    [
        Reference(("storage", Name("torch", "FloatStorage"), "0", "cpu", 4)),
        Reference(("module", Name("os", "system"), "f", "s")),
        Reference(("storage", Name("torch", "FloatStorage"), 0, "cpu", 4)),
    ],
)
def test_a_reference_cannot_pass_for_a_storage(tree):
    with pytest.raises(UnsupportedTensorError, match="storage"):
        emit([tree])


class Other:
    pass


class SubDict(dict):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Other(), Other, SubDict(), collections.OrderedDict(), torch.ones(1), range(3), ...,
        ObjectValue("magic", Name("a", "b"), (), None), ExtensionCode(0), ExtensionCode(2**31),
        TorchTensor("sparse_coo", "float32", (1,), {}),
        TensorSubclass(Name("a", "B"), wrapped(), {}),
        StoragePart("float9", (1,), (1,), 0, floats(1)),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_anything_else_is_refused_and_named(value):
    unknown_object = ObjectValue("reduce", Name("acme", "A"), (), None)
    unknown_object.states = ({"inner": [value]},)
    trees = {
        "a.b.1": {"a": {"b": [1, value]}},
        "w.scale": {"w": wrapped({"scale": value})},
        "o.inner.0": {"o": unknown_object},
        "p": {"p": ParameterValue(value, True)},
    }
    for name, tree in trees.items():
        with pytest.raises(UnsupportedTensorError) as caught:
            emit(tree)
        assert caught.value.location.name == name


# -- tensors --------------------------------------------------------------------------------------


def tensors() -> Iterator[tuple[str, object]]:
    yield "plain", part()
    yield "twice", [shared := part(), shared]
    storage = floats(1, 2, 3, 4, 5, 6)
    yield (
        "views",
        [
            StoragePart("float32", (2, 2), (1, 2), 1, storage),
            StoragePart("float32", (3,), (1,), 2, storage),
            StoragePart("float32", (0, 3), (3, 1), 6, storage),
            StoragePart("float32", (), (), 5, storage),
            StoragePart("float32", (4, 2), (0, 1), 1, storage),
        ],
    )
    yield "empty", StoragePart("float32", (0,), (1,), 0, floats())
    marked = StoragePart("complex64", (1,), (1,), 0, floats(1, 2))
    marked.conjugate = marked.negative = marked.requires_grad = True
    yield "conjugate", marked
    for dtype in ("float8_e4m3fn", "uint16", "int4", "bits8", "float4_e2m1fn_x2"):
        yield dtype, StoragePart(dtype, (2,), (1,), 0, floats(0))
    yield "parameter", ParameterValue(part(), True)
    yield "parameter with state", ParameterValue(part(), False, {"scale": 3})
    yield "parameter of a wrapper", ParameterValue(wrapped({"x": part()}), True)
    yield "wrapper", wrapped({"data": (held := part()), "more": [held, 1]})
    yield "wrapper with slots", wrapped(({"a": part()}, {"b": None}))
    yield "subclass", TensorSubclass(Name("acme", "Tagged"), part(), {"tag": [1]})
    yield "storage", [whole := TypedStorage(storage, "float32", 0, 6), whole]


TENSORS = dict(tensors())


@pytest.mark.parametrize("name", TENSORS)
def test_tensors(name):
    found = again(TENSORS[name])
    assert_same(TENSORS[name], found, bytes_too=name not in {"int4", "bits8"})


def offsets(tree: list[StoragePart]) -> list[tuple[int, int]]:
    return [(each.offset, each.storage.nbytes) for each in again(tree)]


def test_of_a_storage_what_is_used_is_written():
    storage = floats(*range(100))
    one = StoragePart("float32", (2, 3), (10, 1), 20, storage)
    other = StoragePart("float32", (1,), (1,), 40, storage)
    nothing = StoragePart("float32", (0,), (1,), 90, storage)
    assert offsets([one]) == [(0, 52)]
    assert offsets([one, other, nothing]) == [(0, 84), (20, 84), (0, 84)]
    assert offsets([nothing]) == [(0, 0)]
    found = again([one, TypedStorage(storage, "float32", 0, 100)])
    assert (found[0].offset, found[1].count) == (20, 100)
    assert found[0].storage is found[1].storage


def test_a_storage_of_several_dtypes_has_no_class_and_stays_aligned():
    storage = floats(*range(10))
    tree = [
        StoragePart("uint8", (1,), (1,), 5, storage),
        StoragePart("float32", (1,), (1,), 3, storage),
        StoragePart("complex64", (1,), (1,), 1, storage),
    ]
    found = again(tree)
    assert_same(tree, found)
    assert b"UntypedStorage" in written(tree)
    assert [each.offset for each in found] == [5, 3, 1]
    assert found[0].storage.nbytes == 16


def test_a_storage_by_itself_gives_the_class_and_tensors_their_dtype():
    storage = floats(*range(4))
    tree = [StoragePart("int32", (4,), (1,), 0, storage), TypedStorage(storage, "float32", 0, 4)]
    assert_same(tree, again(tree))
    assert b"FloatStorage" in written(tree)
    with pytest.raises(UnsupportedTensorError, match="one of float32 and of int32"):
        emit([*tree, TypedStorage(storage, "int32", 0, 4)])


def test_a_part_of_a_storage_by_itself_is_refused():
    with pytest.raises(UnsupportedTensorError, match="by itself") as caught:
        emit({"a": TypedStorage(floats(1, 2, 3), "float32", 1, 2)})
    assert caught.value.location.name == "a"


def test_a_tensor_outside_its_storage_is_refused():
    with pytest.raises(UnsupportedTensorError, match="to byte 20 of a storage of 16") as caught:
        emit({"a": {"b": StoragePart("float32", (4,), (1,), 1, floats(1, 2, 3, 4))}})
    assert caught.value.location.name == "a.b"


def test_a_storage_has_its_place():
    storage = floats(1, 2, 3, 4)
    storage.location = "cuda:1\n."
    assert again(part(storage)).storage.location == "cuda:1\n."


def test_parts_of_any_kind_are_tensors_of_their_own():
    tensor = torch.arange(6.0).reshape(2, 3)
    one = TensorPart(tensor.t())
    view = TensorPart(tensor).view("uint8", (24,))
    found = again({"a": one, "b": one, "v": view, "s": TensorPart(torch.tensor(1.5))})
    assert found["a"] is found["b"]
    assert (found["a"].shape, found["a"].stride) == ((3, 2), (2, 1))
    assert found["a"].read().tolist() == tensor.t().tolist()
    assert found["v"].read().tolist() == tensor.reshape(-1).view(torch.uint8).tolist()
    assert (found["s"].shape, found["s"].read().item()) == ((), 1.5)


def test_parts_of_any_kind_beside_a_storage_of_several_dtypes():
    storage = floats(*range(4))
    mixed = [StoragePart(dtype, (4,), (1,), 0, storage) for dtype in ("int32", "float32")]
    parts = [TensorPart(torch.full((3,), at, dtype=torch.int16)) for at in range(50)]
    found = again([*parts, *mixed])
    assert [each.read().tolist() for each in found[:50]] == [[at] * 3 for at in range(50)]


# -- what the assembler can say -------------------------------------------------------------------


def test_whatever_an_attacker_says_is_said_again():
    kept = 0
    for name, body in asm.gadgets("/tmp/canary"):
        try:
            tree = read(asm.stream(body, protocol=4))
        except AoserialError:
            continue
        found = again(tree)
        try:
            assert_same(tree, found)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None
        kept += 1
    assert kept > 2000
