"""What torch, Python and NumPy pickle, as values: written by torch.save, read without it."""

from __future__ import annotations

import argparse
import collections
import enum
import functools
import io
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy
import pytest
import torch
from support import containers, pickle_assembler as asm
from support.tensors import same_bytes

from aoserial.errors import BoundsError, FormatError, LimitError, PickleError
from aoserial.storage.pickle import (
    ArrayPart,
    EnumValue,
    Key,
    Limits,
    Name,
    ObjectValue,
    ParameterValue,
    Partial,
    PickleFile,
    Rebuilt,
    StateDict,
    StoragePart,
    TensorSubclass,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
    named_tensors,
)
from aoserial.storage.pickle.dtypes import ITEMSIZES, STORAGE_DTYPES, torch_dtype


class Colour(enum.Enum):
    RED = 1
    BLUE = "blue"


class Point(NamedTuple):
    x: int
    y: object


@dataclass
class Config:
    lr: float = 0.1
    point: object = None


@dataclass(slots=True)
class Slotted:
    a: int
    b: object


class Wrapped(torch.Tensor):
    """A wrapper subclass, as torchao's are."""

    @staticmethod
    def __new__(cls, inner, extra=None):
        made = torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=torch.bfloat16)
        made.inner, made.extra = inner, extra
        return made

    def __init__(self, inner, extra=None):
        pass

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        if func is torch.ops.aten.detach.default:
            return cls(args[0].inner, args[0].extra)
        raise NotImplementedError(func)


class WithSlots(Wrapped):
    __slots__ = ("inner",)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


class Tagged(torch.Tensor):
    """A subclass with bytes of its own."""


class TaggedList(list):
    pass


@pytest.fixture(params=["mapped", "read"])
def saved(request, tmp_path):
    """Saves with torch, opens without: gives the tree."""
    files = []

    def save(value, **options):
        path = tmp_path / f"{len(files)}.pt"
        torch.save(value, path, **options)
        files.append(PickleFile.open(path, mapped=request.param == "mapped"))
        return files[-1].tree

    yield save
    for file in files:
        file.close()


def opened(tmp_path, body: bytes, storages=None, **options):
    path = tmp_path / "x.pt"
    path.write_bytes(containers.zipped(asm.stream(body), storages))
    return PickleFile.open(path, **options)


# -- plain tensors ------------------------------------------------------------------------------

# torch.save knows no plain tensors of the others
READABLE = [name for name in ITEMSIZES if not re.fullmatch(r"q.*|bits.*|u?int[1-7]", name)]


@pytest.mark.parametrize("name", READABLE)
def test_a_tensor_of_every_dtype(saved, name):
    dtype = torch_dtype(name)
    count = 6 if name != "bool" else 1
    raw = torch.arange(count * ITEMSIZES[name], dtype=torch.uint8)
    tensor = raw.view(dtype).reshape(2, 3) if name != "bool" else torch.tensor([[True, False]])
    part = saved({"a": tensor})["a"]
    assert isinstance(part, StoragePart)
    assert (part.dtype, part.shape, part.nbytes) == (name, tuple(tensor.shape), tensor.nbytes)
    assert same_bytes(part.read(), tensor)


@pytest.mark.parametrize(
    "name", [name for name in ITEMSIZES if ITEMSIZES[name] == 1 and name[0] != "q"]
)
def test_a_view_of_the_dtypes_that_torch_cannot_copy(tmp_path, name):
    body = asm.call(
        asm.global_("torch._utils", "_rebuild_tensor_v3"),
        asm.storage(cls="UntypedStorage", count=16),
        b"K\1",
        asm.ints((2, 2)),
        asm.ints((1, 3)),
        asm.FALSE,
        asm.EMPTY_DICT,
        asm.global_("torch", name),
    )
    part = opened(tmp_path, body, {"0": bytes((0, 1, 0, 0, 1, 1)) + bytes(10)}).tree
    assert (part.dtype, part.shape) == (name, (2, 2))
    assert part.read().view(torch.uint8).tolist() == [[1, 1], [0, 1]]


def base() -> torch.Tensor:
    return torch.arange(24, dtype=torch.float32).reshape(4, 6)


VIEWS = {
    "transposed": lambda: base().t(),
    "narrowed": lambda: base()[1:3, 2:5],
    "stepped": lambda: base()[::2, ::3],
    "expanded": lambda: torch.ones(1, 3).expand(5, 3),
    "scalar": lambda: torch.tensor(2.5),
    "an element": lambda: base()[2, 3],
    "empty": lambda: torch.empty(0, 3),
    "empty at the end": lambda: base().flatten()[24:],
    "of one": lambda: torch.ones(1, 1, 1),
    "overlapping": lambda: torch.arange(7.0).as_strided((4, 4), (1, 1)),
    "with dimensions of one": lambda: base().as_strided((1, 4, 1, 6), (999, 6, 77, 1)),
    "channels last": lambda: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "conjugate": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj(),
    "negative": lambda: torch.tensor([1 + 2j, 3 - 4j]).conj().imag,
    "negative zero": lambda: torch.tensor([-0.0, float("nan")]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_a_view(saved, name):
    tensor = VIEWS[name]()
    part = saved(tensor)
    assert part.shape == tuple(tensor.shape)
    found = part.read()
    assert found.is_contiguous()
    assert same_bytes(found, tensor.resolve_conj().resolve_neg())
    assert part.stride == tensor.stride()


def test_each_read_tensor_has_a_storage_of_its_own(saved):
    whole = base()
    tree = saved({"a": whole[:2], "b": whole[2:], "t": whole.t()})
    for part in tree.values():
        found = part.read()
        assert found.storage_offset() == 0
        found.add_(1)
    assert tree["a"].storage is tree["b"].storage is tree["t"].storage


def test_writing_to_a_tensor_leaves_the_file_alone(tmp_path):
    torch.save(torch.ones(4), tmp_path / "x.pt")
    before = (tmp_path / "x.pt").read_bytes()
    with PickleFile.open(tmp_path / "x.pt") as file:
        file.tree.read().add_(1)
    assert (tmp_path / "x.pt").read_bytes() == before


def test_shared_storages_stay_shared_and_ties_show(saved):
    weight = torch.ones(3, 3)
    tree = saved({"a": weight, "b": weight, "row": weight[0], "other": torch.ones(3, 3)})
    assert tree["a"] is tree["b"]  # one object in the pickle
    assert tree["row"].storage is tree["a"].storage
    assert tree["row"].place != tree["a"].place
    assert tree["other"].storage is not tree["a"].storage
    tree = saved({"a": weight, "b": weight.detach()})  # two objects, one place
    assert tree["a"] is not tree["b"]
    assert tree["a"].place == tree["b"].place


def test_requires_grad_is_kept(saved):
    tree = saved([torch.ones(1, requires_grad=True), torch.ones(1)])
    assert [part.requires_grad for part in tree] == [True, False]


def test_a_bool_that_is_neither_is_refused(tmp_path):
    body = asm.tensor(asm.storage(cls="BoolStorage"))
    with opened(tmp_path, body, {"0": b"\0\1\2\1"}) as file:
        assert file.tree.dtype == "bool"
        with pytest.raises(FormatError, match="byte 2 at element 2"):
            file.tree.read()


# -- bounds -------------------------------------------------------------------------------------

OUTSIDE = {
    "one too many": {"size": (5,)},
    "offset": {"offset": 1},
    "stride": {"stride": (2,)},
    "huge stride": {"stride": (10**9,)},
    "stride of 2**63": {"size": (1,), "stride": (2**63,)},
    "two dimensions": {"size": (2, 2), "stride": (3, 1)},
    "size of 2**62": {"size": (2**62,)},
    "product of 2**80": {"size": (2**40, 2**40), "stride": (0, 0)},
    "negative size": {"size": (-1,)},
    "negative stride": {"stride": (-1,)},
    "negative offset": {"offset": -1},
    "offset of an empty one": {"size": (0,), "offset": 5},
    "empty, but huge": {"size": (0, 2**62, 2**62), "stride": (0, 0, 0)},
    "strides missing": {"size": (2, 2), "stride": (1,)},
    "offset and wrap": {"size": (2,), "offset": 2**64 - 1},
}


@pytest.mark.parametrize("mapped", [True, False])
@pytest.mark.parametrize("name", OUTSIDE)
def test_a_tensor_outside_its_storage_is_refused_and_named(tmp_path, name, mapped):
    body = asm.dict_(asm.text("layer.weight"), asm.tensor(**OUTSIDE[name]))
    with pytest.raises(BoundsError) as caught:
        opened(tmp_path, body, mapped=mapped)
    assert caught.value.location.name == "layer.weight"
    assert caught.value.location.file == str(tmp_path / "x.pt")


@pytest.mark.parametrize(
    "held",
    [
        asm.storage(count=5),
        asm.storage(count=3),
        asm.storage(count=16, cls="HalfStorage"),
        asm.storage(count=2**62),
        asm.storage(count=15, cls="UntypedStorage"),
    ],
)
def test_a_storage_that_is_not_as_long_as_it_is_said_to_be_is_refused(tmp_path, held):
    with pytest.raises(BoundsError, match="bytes"):
        opened(tmp_path, asm.tensor(held))


@pytest.mark.parametrize(
    "key", ["1", "../data.pkl", "00", "\u0660", "0 ", "", "-1", "0x0", "1" * 30]
)
def test_a_storage_that_is_not_there_is_refused(tmp_path, key):
    with pytest.raises(PickleError, match="no storage"):
        opened(tmp_path, asm.tensor(asm.storage(key)))


def storage_id(*items: bytes) -> bytes:
    return asm.tuple_(asm.text("storage"), asm.global_("torch", "FloatStorage"), *items) + b"Q"


@pytest.mark.parametrize(
    "held",
    [
        storage_id(b"K\0", asm.text("cpu"), b"K\x04"),
        storage_id(asm.text("0"), asm.global_("os", "system"), b"K\x04"),
        storage_id(asm.text("0"), asm.text("cpu"), asm.TRUE),
        storage_id(asm.text("0"), asm.text("cpu"), asm.integer(-4)),
        storage_id(asm.text("0"), asm.text("cpu"), asm.text("4")),
        storage_id(asm.text("0"), asm.text("cpu"), b"K\x04", asm.text("view")),
    ],
    ids=["int key", "callable place", "bool", "negative", "text", "view of text"],
)
def test_a_malformed_id_of_a_storage_is_refused(tmp_path, held):
    with pytest.raises(PickleError):
        opened(tmp_path, held)


@pytest.mark.parametrize("place", ["cuda:0", "meta", "x" * 1_000_000])
def test_the_place_a_storage_was_in_does_not_matter(tmp_path, place):
    with opened(tmp_path, asm.tensor(asm.storage(location=place))) as file:
        assert file.tree.read().tolist() == [1, 2, 3, 4]
        assert file.tree.storage.location == place[:64]


@pytest.mark.parametrize(
    "wrong",
    [
        asm.tuple_(asm.TRUE),
        asm.tuple_(asm.text("4")),
        asm.tuple_(b"G@\x10\0\0\0\0\0\0"),
        asm.list_(b"K\x04"),
        asm.NONE,
        b"K\x04",
    ],
)
def test_a_shape_of_other_things_is_refused(tmp_path, wrong):
    body = asm.call(
        asm.global_("torch._utils", "_rebuild_tensor"), asm.storage(), b"K\0", wrong, wrong
    )
    with pytest.raises(PickleError, match="shape or strides"):
        opened(tmp_path, body)


def test_the_rank_is_limited(tmp_path):
    body = asm.tensor(size=(1,) * 65, stride=(1,) * 65)
    with pytest.raises(LimitError) as caught:
        opened(tmp_path, body)
    assert caught.value.limit == "rank"


def test_an_expanded_tensor_is_a_view_until_it_is_read(tmp_path):
    body = asm.tensor(size=(2**20, 2**20), stride=(0, 0))
    with opened(tmp_path, body) as file:
        assert file.tree.shape == (2**20, 2**20)
        with pytest.raises(LimitError) as caught:
            file.tree.read()
        assert caught.value.limit == "expanded_bytes"


def test_a_view_that_repeats_within_the_budget_is_written_out(tmp_path):
    body = asm.tensor(size=(3, 4), stride=(0, 1))
    with opened(tmp_path, body, limits=Limits(expanded_bytes=48)) as file:
        assert file.tree.read().tolist() == [[1, 2, 3, 4]] * 3


# -- what wraps tensors --------------------------------------------------------------------------


def test_parameters(saved):
    linear = torch.nn.Linear(2, 2)
    tree = saved({"weight": linear.weight, "frozen": torch.nn.Parameter(torch.ones(1), False)})
    assert isinstance(tree["weight"], ParameterValue)
    assert (tree["weight"].requires_grad, tree["frozen"].requires_grad) == (True, False)
    assert same_bytes(tree["weight"].data.read(), linear.weight.detach())


def test_a_parameter_with_attributes(saved):
    parameter = torch.nn.Parameter(torch.ones(2))
    parameter.scale = 3
    found = saved(parameter)
    assert (found.state, found.data.shape) == ({"scale": 3}, (2,))


def test_backward_hooks_are_dropped_with_a_note(tmp_path):
    hooks = asm.call(asm.global_("collections", "OrderedDict")) + b"K\x01"
    hooks += asm.global_("os", "system") + asm.SETITEM
    arguments = (asm.storage(), b"K\0", asm.ints((4,)), asm.ints((1,)), asm.FALSE, hooks)
    body = asm.call(asm.global_("torch._utils", "_rebuild_tensor_v2"), *arguments)
    with opened(tmp_path, body) as file:
        assert isinstance(file.tree, StoragePart)
        assert file.notes == ["dropped the backward hooks of 1 tensors"]


def test_a_wrapper_subclass(saved):
    tensor = Wrapped(torch.arange(6.0).reshape(2, 3), {"bits": 4})
    found = saved({"w": tensor})["w"]
    assert isinstance(found, WrapperSubclass)
    assert found.path == f"{Wrapped.__module__}.Wrapped"
    assert (found.dtype, found.shape, found.stride) == ("bfloat16", (2, 3), (3, 1))
    assert (found.layout, found.device) == ("strided", TorchDevice("cpu"))
    assert found.fields["extra"] == {"bits": 4}
    assert same_bytes(found.fields["inner"].read(), tensor.inner)


def test_wrappers_inside_wrappers_to_any_depth(saved):
    tensor = torch.ones(2, 2)
    for _ in range(50):
        tensor = Wrapped(tensor)
    found = saved(tensor)
    for _ in range(50):
        assert isinstance(found, WrapperSubclass)
        found = found.fields["inner"]
    assert isinstance(found, StoragePart)


def test_a_wrapper_with_slots_has_a_pair_of_dicts(saved):
    made = WithSlots(torch.ones(2, 2), "x")
    found = saved(made)
    assert isinstance(found.state, tuple)
    assert found.fields.keys() >= {"inner", "extra"}


@pytest.mark.parametrize(
    "state",
    [asm.NONE, asm.list_(asm.NONE), asm.tuple_(asm.NONE, asm.NONE, asm.NONE), b"K\x07"],
)
def test_a_wrapper_with_an_odd_state_keeps_it(tmp_path, state):
    body = asm.wrapper(("gone", "Tensor")).replace(asm.dict_() + b"t", state + b"t")
    found = opened(tmp_path, body).tree
    assert isinstance(found, WrapperSubclass)
    assert found.fields == {}


def test_a_wrapper_of_two_classes_stays_unknown(tmp_path):
    one = asm.wrapper(("gone", "Tensor"))
    two = one.replace(b"cgone\nTensor\n", b"cgone\nOther\n", 1)
    assert isinstance(opened(tmp_path, two).tree, ObjectValue)


def test_a_wrapper_with_a_negative_size_is_refused(tmp_path):
    with pytest.raises(BoundsError):
        opened(tmp_path, asm.wrapper(("gone", "Tensor"), size=(2, -2)))


def test_a_subclass_with_bytes_of_its_own(saved):
    tensor = torch.ones(3).as_subclass(Tagged)
    tensor.tag = "x"
    found = saved(tensor)
    assert isinstance(found, TensorSubclass)
    assert (found.path, found.fields) == (f"{Tagged.__module__}.Tagged", {"tag": "x"})
    assert same_bytes(found.data.read(), torch.ones(3))


def test_a_plain_tensor_with_attributes(saved):
    tensor = torch.ones(3)
    tensor.tag = "x"
    found = saved(tensor)
    assert (found.path, found.fields) == ("torch.Tensor", {"tag": "x"})


def test_ours_are_recognised(tmp_path):
    body = asm.call(
        asm.global_("aoserial", "_rebuild"), asm.text("aoserial.Int4Tensor"), b"K\x02", asm.tensor()
    )
    found = opened(tmp_path, body).tree
    assert isinstance(found, Rebuilt)
    assert (found.type, found.version) == ("aoserial.Int4Tensor", 2)
    assert isinstance(found.arguments[0], StoragePart)


# -- tensors that are not strided -----------------------------------------------------------------


def quantized(dtype=torch.qint8) -> torch.Tensor:
    return torch.quantize_per_tensor(torch.arange(6.0).reshape(2, 3), 0.5, 1, dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.qint8, torch.quint8, torch.qint32])
def test_a_quantized_tensor_is_inert_parts(saved, dtype):
    tensor = quantized(dtype)
    found = saved(tensor)
    assert isinstance(found, TorchTensor)
    assert (found.kind, found.dtype, found.shape) == ("quantized", str(dtype)[6:], (2, 3))
    assert same_bytes(found.fields["int_repr"].read(), tensor.int_repr())
    assert (found.fields["scale"], found.fields["zero_point"]) == (0.5, 1)


@pytest.mark.filterwarnings("ignore")
def test_a_tensor_quantized_by_channel(saved):
    scales, zero_points = torch.tensor([0.1, 0.2]), torch.tensor([1, 2])
    tensor = torch.quantize_per_channel(torch.rand(2, 3), scales, zero_points, 0, torch.qint8)
    found = saved(tensor)
    assert found.fields["axis"] == 0
    assert same_bytes(found.fields["scales"].read(), tensor.q_per_channel_scales())
    assert same_bytes(found.fields["int_repr"].read(), tensor.int_repr())


def by_channel(axis: int, scales: int) -> bytes:
    arguments = asm.list_(*[b"G?\xf0\0\0\0\0\0\0"] * scales)
    return asm.call(
        asm.global_("torch._utils", "_rebuild_qtensor"),
        asm.storage(cls="QInt8Storage"),
        b"K\0",
        asm.ints((2, 2)),
        asm.ints((2, 1)),
        asm.tuple_(
            asm.global_("torch", "per_channel_affine"), arguments, arguments, asm.integer(axis)
        ),
        asm.FALSE,
        asm.EMPTY_DICT,
    )


@pytest.mark.parametrize(("axis", "scales"), [(-1, 2), (2, 2), (0, 1), (0, 3)])
def test_channels_that_do_not_fit_are_refused(tmp_path, axis, scales):
    with pytest.raises(BoundsError):
        opened(tmp_path, by_channel(axis, scales), {"0": b"\1\2\3\4"})
    assert opened(tmp_path, by_channel(0, 2), {"0": b"\1\2\3\4"}).tree.kind == "quantized"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_a_sparse_tensor_is_inert_parts(saved, layout):
    dense = torch.zeros(4, 4)
    dense[0, 1] = 2.0
    tensor = {
        "coo": dense.to_sparse,
        "csr": dense.to_sparse_csr,
        "csc": dense.to_sparse_csc,
        "bsr": lambda: dense.to_sparse_bsr((2, 2)),
        "bsc": lambda: dense.to_sparse_bsc((2, 2)),
    }[layout]()
    found = saved(tensor)
    assert (found.kind, found.shape, found.dtype) == (f"sparse_{layout}", (4, 4), "float32")
    assert same_bytes(
        found.fields["values"].read(), tensor._values() if layout == "coo" else tensor.values()
    )


@pytest.mark.filterwarnings("ignore")
def test_a_nested_tensor_is_inert_parts(saved):
    found = saved(torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]))
    assert (found.kind, found.fields["values"].shape) == ("nested", (5,))


def test_a_meta_tensor_has_no_bytes(saved):
    found = saved(torch.empty(2, 3, device="meta", dtype=torch.float16))
    assert (found.kind, found.dtype, found.shape) == ("meta", "float16", (2, 3))


@pytest.mark.filterwarnings("ignore")
def test_a_storage_by_itself(saved):
    tree = saved([torch.ones(3).untyped_storage(), torch.ones(3).storage()])
    assert all(isinstance(value, TypedStorage) for value in tree)
    assert (tree[0].dtype, tree[0].count, tree[1].dtype) == ("uint8", 12, "float32")
    assert tree[1].part.read().tolist() == [1, 1, 1]


# -- Python -------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_plain_values(saved, protocol):
    values = {
        "epoch": 7,
        "lr": 0.1,
        "name": "x",
        "none": None,
        "flag": True,
        "bytes": b"\0\xff",
        "empty": b"",
        "big": 2**70,
        "complex": 1 - 2j,
        "array": bytearray(b"ab"),
        "pair": (1, (2,)),
        "set": {1, 2},
        "frozen": frozenset({"a"}),
        3: "int key",
        None: "none key",
    }
    assert saved(values, pickle_protocol=protocol) == values


def test_torchs_own_values(saved):
    tree = saved([torch.float8_e4m3fn, torch.Size([2, 3]), torch.device("cuda", 1), torch.strided])
    assert tree == [
        TorchDtype("float8_e4m3fn"),
        TorchSize((2, 3)),
        TorchDevice("cuda", 1),
        TorchLayout("strided"),
    ]
    assert isinstance(tree[1], TorchSize)
    assert saved(torch.device("cpu")) == TorchDevice("cpu")
    assert saved(torch.per_tensor_affine) == Name("torch", "per_tensor_affine")


def test_the_older_names_of_dtypes(tmp_path):
    found = opened(tmp_path, asm.list_(asm.global_("torch", "half"), asm.global_("torch", "long")))
    assert found.tree == [TorchDtype("float16"), TorchDtype("int64")]


def test_ordered_dicts_and_their_attributes(saved):
    module = torch.nn.Sequential(torch.nn.Linear(2, 2))
    tree = saved(module.state_dict())
    assert isinstance(tree, StateDict)
    assert list(tree) == ["0.weight", "0.bias"]
    assert tree.attributes["_metadata"]["0"] == {"version": 1}


def test_an_ordered_dict_of_python_2(tmp_path):
    pairs = asm.list_(asm.list_(asm.text("a"), b"K\x01"), asm.list_(asm.text("b"), b"K\x02"))
    found = opened(tmp_path, asm.call(asm.global_("collections", "OrderedDict"), pairs)).tree
    assert list(found.items()) == [("a", 1), ("b", 2)]


def test_keys_of_other_kinds_are_kept_in_order(saved):
    tree = saved({(1, 2): torch.ones(1), Colour.RED: 2, "s": 3})
    assert [key.value if isinstance(key, Key) else key for key in tree] == [
        (1, 2),
        EnumValue(Name(__name__, "Colour"), 1),
        "s",
    ]


@pytest.mark.parametrize("protocol", [2, 5])
def test_enums_by_value(saved, protocol):
    tree = saved([Colour.RED, Colour.BLUE], pickle_protocol=protocol)
    assert tree == [
        EnumValue(Name(__name__, "Colour"), 1),
        EnumValue(Name(__name__, "Colour"), "blue"),
    ]


def test_an_enum_by_name_is_a_name(tmp_path):
    body = asm.call(asm.global_("builtins", "getattr"), asm.global_("acme", "Mode"), asm.text("A"))
    assert opened(tmp_path, body).tree == Name("acme", "Mode.A")


def test_a_named_tuple(saved):
    found = saved(Point(1, torch.ones(2)))
    assert isinstance(found, ObjectValue)
    assert (found.path, found.kind) == (f"{__name__}.Point", "newobj")
    assert found.arguments[0] == 1
    assert isinstance(found.arguments[1], StoragePart)


def test_dataclasses_and_other_objects(saved):
    found = saved(Config(point=Point(1, 2)))
    assert found.path == f"{__name__}.Config"
    assert found.fields["lr"] == 0.1
    assert found.fields["point"].arguments == (1, 2)
    assert saved(Slotted(1, "x")).path == f"{__name__}.Slotted"
    assert saved(argparse.Namespace(lr=1, layers=[2])).fields == {"lr": 1, "layers": [2]}


def test_a_list_of_a_class_of_its_own_and_a_default_dict(saved):
    found = saved(TaggedList([1, 2]))
    assert (found.path, found.items) == (f"{__name__}.TaggedList", [1, 2])
    found = saved(collections.defaultdict(list, {"a": [1]}))
    assert (found.arguments, found.pairs) == ((Name("builtins", "list"),), [("a", [1])])


def test_functions_are_names(saved):
    tree = saved([functools.reduce, Point, torch.nn.functional.relu, len])
    assert [value.path for value in tree] == [
        "functools.reduce",
        f"{__name__}.Point",
        "torch.nn.functional.relu",
        "builtins.len",
    ]


def test_partials(saved):
    found = saved(functools.partial(torch.nn.functional.relu, 1, inplace=True))
    assert isinstance(found, Partial)
    assert found.function == Name("torch.nn.functional", "relu")
    assert (found.arguments, found.keywords) == ((1,), {"inplace": True})


def test_a_whole_training_checkpoint(saved):
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2)).sum().backward()
    optimizer.step()
    tree = saved(
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "args": argparse.Namespace(lr=0.1),
            "epoch": 3,
            "rng": torch.get_rng_state(),
        }
    )
    names = dict(named_tensors(tree, Limits()))
    assert list(names)[:3] == ["model.weight", "model.bias", "optimizer.state.0.step"]
    assert "optimizer.state.1.exp_avg_sq" in names
    assert tree["epoch"] == 3
    assert tree["optimizer"]["param_groups"][0]["params"] == [0, 1]


def test_a_whole_module_is_an_object_with_its_tensors_inside(saved):
    found = saved(torch.nn.Linear(2, 2))
    assert found.path == "torch.nn.modules.linear.Linear"
    assert isinstance(found.fields["_parameters"]["weight"], ParameterValue)


# -- NumPy --------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", [2, 4, 5])
@pytest.mark.parametrize(
    "name", ["float16", "float32", "float64", "int8", "uint16", "int64", "bool", "complex128"]
)
def test_arrays(saved, name, protocol):
    array = numpy.arange(6).reshape(2, 3).astype(name)
    found = saved({"a": array}, pickle_protocol=protocol)["a"]
    assert isinstance(found, ArrayPart)
    assert (found.dtype, found.shape, found.nbytes) == (name, (2, 3), array.nbytes)
    assert same_bytes(found.read(), torch.from_numpy(array))
    found.read().zero_()  # a buffer of its own, each time
    assert same_bytes(found.read(), torch.from_numpy(array))


def test_an_array_of_bools_that_are_neither_is_refused(saved):
    array = numpy.array([0, 1, 2, 1], dtype="uint8").view(bool)
    with pytest.raises(FormatError, match="byte 2 at element 2"):
        saved(array).read()


def test_arrays_in_other_orders(saved):
    swapped = numpy.arange(4, dtype=">i4")
    assert saved(swapped).read().tolist() == [0, 1, 2, 3]
    for shape in ((3, 1), (2, 3), (2, 3, 4)):
        columns = numpy.asfortranarray(numpy.arange(numpy.prod(shape)).reshape(shape))
        found = saved(columns).read()
        assert found.is_contiguous()
        assert found.tolist() == columns.tolist()
    assert saved(numpy.empty((0, 3))).read().shape == (0, 3)


def test_arrays_of_other_things_stay_objects(saved):
    for array in (numpy.array([object]), numpy.array(["text"]), numpy.zeros(2, dtype="i4,f4")):
        assert isinstance(saved([array])[0], ObjectValue)


@pytest.mark.parametrize(
    "value",
    [
        numpy.float64(0.1),
        numpy.float32(0.5),
        numpy.int64(-3),
        numpy.uint8(7),
        numpy.bool_(True),
        numpy.complex64(1 - 2j),
    ],
)
def test_numpys_numbers_are_numbers(saved, value):
    found = saved([value])[0]
    assert found == value.item()
    assert type(found) is type(value.item())


def test_random_states(saved):
    state = numpy.random.RandomState(0).get_state()
    found = saved(state)
    assert found[0] == "MT19937"
    assert same_bytes(found[1].read(), torch.from_numpy(state[1]))


# -- what is not recognised ------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted({*STORAGE_DTYPES, "UntypedStorage"}))
def test_torchs_functions_given_other_things_stay_objects(tmp_path, name):
    for function in (
        "_rebuild_tensor",
        "_rebuild_tensor_v2",
        "_rebuild_parameter",
        "_rebuild_qtensor",
    ):
        body = asm.call(asm.global_("torch._utils", function), asm.global_("torch", name), asm.NONE)
        assert isinstance(opened(tmp_path, body).tree, ObjectValue)


def test_classes_that_are_gone_keep_their_whole_state(tmp_path):
    body = asm.wrapper(
        ("torchao.quantization.subclass", "Int8WeightOnlyQuantizedLinearWeight"),
        asm.text("int_data"),
        asm.tensor(),
        asm.text("q_scales"),
        asm.tensor(),
        asm.text("n"),
        b"K\x03",
    )
    found = opened(tmp_path, body).tree
    assert found.path == "torchao.quantization.subclass.Int8WeightOnlyQuantizedLinearWeight"
    assert list(found.fields) == ["int_data", "q_scales", "n"]
    assert found.fields["int_data"].read().tolist() == [1, 2, 3, 4]


def test_torch_itself_reads_what_the_assembler_writes():
    data = containers.zipped(
        asm.stream(asm.dict_(asm.text("a"), asm.tensor(size=(2, 2), stride=(1, 2))))
    )
    assert torch.load(io.BytesIO(data), weights_only=True)["a"].tolist() == [[1, 3], [2, 4]]
