"""Saved and loaded again: nothing is lost, nothing is invented."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from safetensors import safe_open
from support.tensors import as_bytes, same_bytes
from torch import nn

import aoserial
from aoserial.storage.dtypes import DTYPES, torch_dtype

GENERATOR = torch.Generator().manual_seed(7)


def weight(kind="float8", shape=(32, 64), granularity="row", dtype=torch.bfloat16):
    w = torch.randn(shape, generator=GENERATOR).to(dtype)
    cls = {"float8": aoserial.Float8Tensor, "int8": aoserial.Int8Tensor}[kind]
    return cls.from_float(w, granularity=granularity)


def parts_of(tensor):
    return {name: getattr(tensor, name) for name in tensor.part_names()}


def assert_same(left, right):
    """The same tensor to the last bit: class, dtype, shape, attributes and parts."""
    assert type(left) is type(right)
    if not isinstance(left, aoserial.VersionedTensor):
        assert same_bytes(left, right)
        return
    assert (left.shape, left.dtype) == (right.shape, right.dtype)
    assert left.__tensor_flatten__() == right.__tensor_flatten__()
    for name, part in parts_of(left).items():
        assert same_bytes(part, getattr(right, name))


def round_trip(state, path):
    aoserial.save(state, path)
    loaded = aoserial.load(path)
    assert loaded.keys() == state.keys()
    return loaded


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.safetensors"


@pytest.mark.parametrize("kind", ["float8", "int8"])
@pytest.mark.parametrize("granularity", ["tensor", "row", (16, 32), (1, 48)])
@pytest.mark.parametrize("shape", [(32, 64), (3, 32, 64)])
def test_a_quantized_tensor_comes_back_bit_for_bit(path, kind, granularity, shape):
    if isinstance(granularity, tuple) and len(shape) == 3:
        granularity = (1, *granularity)
    before = weight(kind, shape, granularity)
    assert_same(round_trip({"w": before}, path)["w"], before)


@pytest.mark.parametrize("dtype", [d for d in DTYPES if d.in_torch], ids=lambda d: d.name)
def test_a_plain_tensor_of_every_dtype_comes_back_bit_for_bit(path, dtype):
    raw = torch.arange(96, dtype=torch.uint8) % (2 if dtype.name == "bool" else 251)
    before = raw.view(torch_dtype(dtype.name)).reshape(2, -1)
    assert_same(round_trip({"t": before}, path)["t"], before)


def test_bits_that_compare_oddly_survive(path):
    payload = torch.tensor([0x7FC00001, 0xFF800001 - 2**32, -(2**31)], dtype=torch.int32)
    before = payload.view(torch.float32)  # two NaNs with payloads and -0.0
    assert torch.equal(as_bytes(round_trip({"t": before}, path)["t"]), as_bytes(before))


@pytest.mark.parametrize(
    "before",
    [
        torch.tensor(3.0),
        torch.empty(0, 3),
        torch.empty(4, 0, dtype=torch.int8),
        torch.arange(12.0).view(3, 4).t(),
        torch.arange(12.0).view(3, 4)[:, ::2],
        torch.arange(12.0)[4:7],
        torch.ones(3, 1).expand(3, 5),
        torch.arange(6).flip(0),
    ],
    ids=["0-d", "empty", "empty rows", "transposed", "strided", "view", "expanded", "flipped"],
)
def test_a_tensor_of_any_form_comes_back_contiguous_with_its_values(path, before):
    after = round_trip({"t": before}, path)["t"]
    assert torch.equal(after, before)
    assert after.is_contiguous()


def test_non_contiguous_parts_of_a_quantized_tensor_are_saved(path):
    before = weight()
    column_major = aoserial.Float8Tensor(
        before.qdata.t().contiguous().t(), before.scale, before.block_size, dtype=before.dtype
    )
    assert not column_major.qdata.is_contiguous()
    assert_same(round_trip({"w": column_major}, path)["w"].contiguous(), before)


def test_a_parameter_is_saved_as_its_tensor(path):
    state = {"p": nn.Parameter(torch.ones(3)), "q": nn.Parameter(weight(), requires_grad=False)}
    loaded = round_trip(state, path)
    assert type(loaded["p"]) is torch.Tensor
    assert isinstance(loaded["q"], aoserial.Float8Tensor)


def test_a_modules_state_dict_is_saved_as_it_is(path):
    model = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32))
    loaded = round_trip(model.state_dict(), path)
    for name, tensor in model.state_dict().items():
        assert torch.equal(loaded[name], tensor)


@pytest.mark.parametrize("make", [weight, lambda: torch.randn(4)], ids=["quantized", "plain"])
def test_tied_tensors_come_back_tied_and_are_stored_once(path, make):
    tensor = make()
    state = {"embed.weight": tensor, "head.weight": tensor, "third": tensor.detach()}
    loaded = round_trip(state, path)
    assert loaded["embed.weight"] is loaded["head.weight"] is loaded["third"]
    with safe_open(path, "pt") as file:
        assert len(file.keys()) == (2 if make is weight else 1)


def test_different_views_of_one_storage_are_stored_each(path):
    fused = torch.arange(12.0)
    state = {"q": fused[:4], "k": fused[4:8], "all": fused, "again": fused.view(3, 4)}
    for name, tensor in round_trip(state, path).items():
        assert torch.equal(tensor, state[name])


@pytest.mark.parametrize(
    "names",
    [
        ["weight"],
        ["m.weight", "m.weight_g"],
        ["a.weight", "a.weight_g", "a.weight_g_scale"],
        ["x", ".x", "x.", "a..b"],
        ["ünïcode.weight", "日本語"],
        ["with space", 'quote"and\\slash', "tensor_names", "aoserial"],
        ["_weight", "__weight", "m._weight"],
    ],
    ids=str,
)
def test_any_names_come_back(path, names):
    for name, tensor in round_trip({name: weight() for name in names}, path).items():
        assert isinstance(tensor, aoserial.Float8Tensor), name


def test_a_plain_tensor_may_have_the_name_that_a_part_would_have(path):
    state = {
        "m.weight": weight(),
        "m._weight_qdata": torch.ones(3),
        "m._weight_scale": torch.zeros(2),
        "m.weight_g": torch.ones(1),
    }
    loaded = round_trip(state, path)
    for name, tensor in state.items():
        assert_same(loaded[name], tensor)


def test_every_safetensors_reader_opens_the_file_and_sees_the_parts(path):
    before = weight("int8")
    aoserial.save({"m.weight": before, "m.bias": torch.ones(4)}, path)
    with safe_open(path, "pt") as file:
        assert sorted(file.keys()) == ["m._weight_qdata", "m._weight_scale", "m.bias"]
        assert torch.equal(file.get_tensor("m._weight_qdata"), before.qdata)
        assert file.metadata()["format"] == "pt"


def test_data_starts_on_a_page_and_large_parts_are_aligned(path):
    aoserial.save(
        {"w": weight(), "odd": torch.ones(3, dtype=torch.uint8), "b": torch.ones(5)}, path
    )
    with aoserial.open(path) as checkpoint:
        record = checkpoint.record("w")
    assert record.parts["qdata"].offset % 64 == 0
    assert record.parts["scale"].offset % 64 == 0


def test_writing_to_a_loaded_tensor_does_not_change_the_file(path):
    aoserial.save({"t": torch.zeros(1000), "w": weight()}, path)
    before = path.read_bytes()
    state = aoserial.load(path)
    state["t"].fill_(7)
    state["w"].qdata.zero_()
    assert path.read_bytes() == before
    assert aoserial.load(path)["t"].sum() == 0


def test_saving_over_the_file_the_tensors_are_mapped_from_is_safe(path):
    before = weight()
    aoserial.save({"w": before, "t": torch.arange(5000)}, path)
    state = aoserial.load(path)
    aoserial.save({"t": state["t"], "w2": state["w"]}, path)
    assert_same(aoserial.load(path)["w2"], before)
    assert torch.equal(aoserial.load(path)["t"], torch.arange(5000))


def test_a_loaded_tensor_owns_its_storage_alone(path):
    aoserial.save({"a": torch.ones(10), "b": torch.ones(100_000)}, path)
    assert aoserial.load(path)["a"].untyped_storage().nbytes() == 40


def test_the_same_state_dict_gives_the_same_bytes(path, tmp_path):
    state = {"w": weight(), "t": torch.ones(3)}
    aoserial.save(state, path, metadata={"b": "2", "a": "1"})
    aoserial.save(state, tmp_path / "again", metadata={"a": "1", "b": "2"})
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_loading_and_saving_again_gives_the_same_bytes(path, tmp_path):
    aoserial.save({"w": weight(), "v": weight("int8"), "t": torch.ones(3)}, path)
    aoserial.save(aoserial.load(path), tmp_path / "again")
    assert path.read_bytes() == (tmp_path / "again").read_bytes()


def test_an_inert_tensor_saved_again_gives_the_same_bytes(path, tmp_path):
    from support.files import edit_envelope, envelope_of

    aoserial.save({"w": weight(), "t": torch.ones(3)}, path)
    edit_envelope(path, lambda e: e["schemas"][0].update(type="gone.Tensor", version=7))
    state = aoserial.load(path, strict=False)
    aoserial.save(state, tmp_path / "again")
    old, new = envelope_of(path), envelope_of(tmp_path / "again")
    assert {k: v for k, v in new.items() if k != "header_digest"} == old
    with safe_open(path, "pt") as one, safe_open(tmp_path / "again", "pt") as two:
        for key in one.keys():
            assert same_bytes(one.get_tensor(key), two.get_tensor(key))


_names = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(_names, unique=True, min_size=1, max_size=8),
    kinds=st.lists(st.sampled_from(["float8", "int8", "plain", "empty"]), min_size=8, max_size=8),
)
def test_any_state_dict_comes_back(tmp_path_factory, names, kinds):
    from unicodedata import normalize

    if len({normalize("NFC", name) for name in names}) < len(names) or "__metadata__" in names:
        return
    make = {
        "float8": lambda: weight("float8", (4, 8)),
        "int8": lambda: weight("int8", (4, 8)),
        "plain": lambda: torch.randn(3, generator=GENERATOR),
        "empty": lambda: torch.empty(0),
    }
    state = {name: make[kind]() for name, kind in zip(names, kinds, strict=False)}
    path = tmp_path_factory.mktemp("any") / "file"
    for name, tensor in round_trip(state, path).items():
        assert_same(tensor, state[name])
