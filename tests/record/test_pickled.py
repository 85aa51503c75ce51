"""The tensors of a pickle as raw records."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import NamedTuple

import pytest
import torch
from support.tensors import same_bytes

from aoserial.errors import EnvelopeError, LimitError
from aoserial.record.pickled import Pickled, decode_pickle
from aoserial.schema import Nested, Symbol
from aoserial.storage.pickle import PickleFile

HERE = f"pickle.{__name__}"


class Mode(enum.Enum):
    FAST = "fast"
    EXACT = 2


class Pair(NamedTuple):
    a: int
    b: object


@dataclass
class Settings:
    mode: Mode
    scale: object = None


class Wrapped(torch.Tensor):
    """A tensor subclass with whatever fields."""

    @staticmethod
    def __new__(cls, shape, fields):
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.bfloat16)

    def __init__(self, shape, fields):
        self.__dict__.update(fields)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


@pytest.fixture
def decoded(tmp_path):
    files = []

    def decode(value) -> Pickled:
        torch.save(value, tmp_path / "x.pt")
        files.append(PickleFile.open(tmp_path / "x.pt"))
        return decode_pickle(files[-1].tensors())

    yield decode
    for file in files:
        file.close()


def record(found: Pickled):
    (group,) = found.catalog.groups
    return group.template


def test_a_subclass_is_a_raw_record_of_its_path_shape_and_dtype(decoded):
    raw = record(decoded({"w": Wrapped((3, 2), {"data": torch.ones(2), "bits": 4})}))
    assert (raw.type, raw.version) == (f"{HERE}.Wrapped", 1)
    assert (raw.shape, raw.dtype) == ((3, 2), "bfloat16")
    assert raw.attributes == {"bits": 4}
    assert {name: (part.dtype, part.shape) for name, part in raw.parts.items()} == {
        "data": ("float32", (2,))
    }


FIELDS = {
    "none": (None, None),
    "truth": (True, True),
    "number": (1.5, 1.5),
    "text": ("a", "a"),
    "list": ([1, [2]], (1, (2,))),
    "size": (torch.Size([1, 2]), (1, 2)),
    "dtype": (torch.float8_e4m3fn, "float8_e4m3fn"),
    "device": (torch.device("cuda", 1), "cuda:1"),
    "layout": (torch.strided, "strided"),
    "member": (Mode.FAST, Symbol(f"{HERE}.Mode", "fast")),
    "numbered": (Mode.EXACT, Symbol(f"{HERE}.Mode", "2")),
    "function": (torch.nn.functional.relu, Symbol("pickle.name", "torch.nn.functional.relu")),
    "pair": (Pair(1, None), Nested(f"{HERE}.Pair", 1, {"0": 1, "1": None})),
    "settings": (
        Settings(Mode.FAST),
        Nested(f"{HERE}.Settings", 1, {"mode": Symbol(f"{HERE}.Mode", "fast"), "scale": None}),
    ),
    "dict": ({"a": 1, 2: "b"}, Nested("pickle.builtins.dict", 1, {"a": 1, "2": "b"})),
    "partial": (
        functools.partial(torch.nn.functional.relu, 1, inplace=True),
        Nested(
            "pickle.functools.partial",
            1,
            {
                "function": Symbol("pickle.name", "torch.nn.functional.relu"),
                "0": 1,
                "inplace": True,
            },
        ),
    ),
    "bytes": (b"\x00\xff", Nested("pickle.builtins.bytes", 1, {"hex": "00ff"})),
}


@pytest.mark.parametrize("name", FIELDS)
def test_a_field_becomes_plain_data(decoded, name):
    value, expected = FIELDS[name]
    raw = record(decoded({"w": Wrapped((1,), {"data": torch.ones(1), "it": value})}))
    found = raw.attributes["it"]
    if isinstance(expected, Nested):
        assert (found.type, found.version, dict(found.fields)) == (
            expected.type,
            1,
            dict(expected.fields),
        )
    else:
        assert found == expected
        assert type(found) is type(expected)


def test_tensors_inside_a_subclass_inside_have_dotted_names(decoded):
    inner = Wrapped((2, 2), {"data": torch.arange(4.0), "kind": "plain"})
    found = decoded({"m.w": Wrapped((2, 2), {"impl": inner, "list": [torch.zeros(1), 5]})})
    raw = record(found)
    assert list(raw.parts) == ["impl.data", "list.0"]
    assert raw.attributes["impl"].type == f"{HERE}.Wrapped"
    assert dict(raw.attributes["impl"].fields) == {
        "(shape)": (2, 2),
        "(dtype)": "bfloat16",
        "kind": "plain",
    }
    assert raw.attributes["list"] == (Symbol("pickle.part", "list.0"), 5)
    keys = found.catalog.groups[0].members["m.w"]
    assert same_bytes(found.parts[keys[0]].read(), torch.arange(4.0))


def test_strides_of_a_turned_tensor_are_kept(decoded):
    class_ = Wrapped((2, 3), {"data": torch.ones(1)})
    assert "(stride)" not in record(decoded({"w": class_})).attributes


def test_tensors_that_differ_by_bytes_alone_are_one_group(decoded):
    made = {f"w{n}": Wrapped((2,), {"data": torch.full((2,), n), "bits": 4}) for n in range(3)}
    (group,) = decoded(made).catalog.groups
    assert list(group.members) == ["w0", "w1", "w2"]


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("a", Mode.FAST), ((1,), [[1]])]
)
def test_attributes_that_are_only_equal_are_not_the_same(decoded, one, other):
    fields = [{"data": torch.ones(2), "it": it} for it in (one, other)]
    found = decoded([Wrapped((2,), each) for each in fields])
    assert len(found.catalog.groups) == 2


def test_tensors_of_one_place_and_objects_that_are_one_are_tied(decoded):
    base, wrapped = torch.arange(4.0), Wrapped((2,), {"data": torch.ones(2)})
    found = decoded({"a": base, "b": base, "c": base[1:], "d": wrapped, "e": wrapped})
    assert found.catalog.ties == {"b": "a", "e": "d"}
    assert list(found.catalog.plain) == ["a", "c"]


def test_a_shared_tuple_that_stands_for_billions_costs_little(decoded):
    many = ()
    for _ in range(30):
        many = (many, many)
    with pytest.raises(LimitError, match="attributes"):
        decoded({"w": Wrapped((1,), {"data": torch.ones(1), "it": many})})


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("proof", "float32", (1,), "{}"),
        ("proof", "float32", (1,), "{}", {"data": 5}),
        ("proof", "float32", (-1,), "{}", {}),
        ("proof", "float32", 1, "{}", {}),
        ("proof", "float32", (1,), "[]", {}),
        ("proof", 5, (1,), "{}", {}),
    ],
)
def test_a_tensor_of_ours_that_we_never_wrote_is_refused(arguments):
    from aoserial.storage.pickle import Rebuilt

    with pytest.raises(EnvelopeError):
        decode_pickle([("w", Rebuilt("aoserial.Int8Tensor", 1, arguments))])
