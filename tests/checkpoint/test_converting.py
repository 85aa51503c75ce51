"""`convert`: any checkpoint we read, in another format; `migrate` to a pickle."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.cases import FIXTURES, case_id, described, pickled_cases
from support.files import edit_envelope, envelope_of
from support.tensors import same_bytes

import aoserial
from aoserial.checkpoint.converting import convert
from aoserial.errors import (
    EraError,
    Faults,
    LossyMigrationError,
    OptionError,
    PathError,
    UnknownTypeError,
    UnsupportedOperationError,
    UnsupportedTensorError,
)


class Wrapper(torch.Tensor):
    """A tensor subclass that nobody registered."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, (3, 2), dtype=inner.dtype)

    def __init__(self, inner):
        self.inner = inner

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(func)


@pytest.fixture
def weight():
    return aoserial.Int8Tensor.from_float(torch.randn(8, 16, dtype=torch.bfloat16))


@pytest.fixture
def ours(tmp_path, weight):
    """A safetensors file of ours with a tied pair of weights, one of biases, and metadata."""
    path, bias = tmp_path / "ours.safetensors", torch.ones(8)
    state = {"m.weight": weight, "m.tied": weight, "m.bias": bias, "m.again": bias}
    aoserial.save(state, path, metadata={"note": "mine"})
    return path


@pytest.fixture
def pickled(tmp_path, weight):
    """A pickle with a tree of its own, a Parameter, a tied pair and what is no tensor."""
    model = OrderedDict(w=torch.nn.Parameter(weight, requires_grad=False), tied=weight)
    tree = {"model": model, "step": 7, "groups": [{"lr": 0.5, "x": torch.arange(3)}]}
    torch.save(tree, tmp_path / "tree.pt")
    return tmp_path / "tree.pt"


def inert_of(path: Path) -> Path:
    """The file with its quantized type unknown."""
    return edit_envelope(path, lambda envelope: envelope["schemas"][0].update(type="gone.Tensor"))


# -- to our types -------------------------------------------------------------------------------


def test_the_name_of_the_new_file_decides_unless_told(ours, tmp_path):
    assert convert(ours, tmp_path / "x.pt").to == "pt"
    assert convert(ours, tmp_path / "x.safetensors").to == "safetensors"
    assert convert(ours, tmp_path / "x").to == "safetensors"
    assert convert(ours, tmp_path / "y", to="pt").to == "pt"
    assert torch.load(tmp_path / "y", weights_only=True).keys() == aoserial.load(ours).keys()


def test_a_safetensors_file_becomes_a_pickle_that_torch_opens_with_its_ties(ours, tmp_path, weight):
    done = convert(ours, tmp_path / "x.pt")
    assert (done.quantized, done.plain, done.inert, done.ties) == (1, 1, 0, 2)
    state = torch.load(tmp_path / "x.pt", weights_only=True)
    assert same_bytes(state["m.weight"].dequantize(), weight.dequantize())
    assert state["m.weight"] is state["m.tied"]
    assert state["m.bias"] is state["m.again"]
    assert done.notes == (
        "a torch.save archive has no place for the metadata and trail of the source",
    )


def test_a_pickle_keeps_its_own_tree_in_a_pickle(pickled, tmp_path, weight):
    assert convert(pickled, tmp_path / "x.pt").notes == ()
    tree = torch.load(tmp_path / "x.pt", weights_only=True)
    assert (tree["step"], tree["groups"][0]["lr"]) == (7, 0.5)
    assert type(tree["model"]) is OrderedDict
    assert isinstance(tree["model"]["w"], torch.nn.Parameter)
    assert same_bytes(tree["model"]["tied"].dequantize(), weight.dequantize())
    assert aoserial.load(tmp_path / "x.pt").keys() == aoserial.load(pickled).keys()


def test_what_is_no_tensor_has_no_place_in_a_safetensors_file_and_is_named(pickled, tmp_path):
    (note,) = convert(pickled, tmp_path / "x").notes
    assert note.endswith("no place for what is no tensor: step, groups.0.lr")
    assert aoserial.load(tmp_path / "x").keys() == {"model.w", "model.tied", "groups.0.x"}


def test_there_and_back_is_the_same_file(ours, tmp_path):
    with aoserial.open(ours) as checkpoint:
        aoserial.save(dict(checkpoint), tmp_path / "bare")
    convert(tmp_path / "bare", tmp_path / "x.pt")
    convert(tmp_path / "x.pt", tmp_path / "back")
    convert(tmp_path / "back", tmp_path / "again.pt")
    assert (tmp_path / "x.pt").read_bytes() == (tmp_path / "again.pt").read_bytes()


def test_trail_metadata_and_unknown_keys_of_the_envelope_are_kept(ours, tmp_path):
    trail = [{"step": "x", "from": "a@1", "to": "a@2", "count": 1, "by": "me"}]
    edit_envelope(ours, lambda envelope: envelope.update(trail=trail, future=1))
    convert(ours, tmp_path / "x")
    envelope = envelope_of(tmp_path / "x")
    assert (envelope["trail"], envelope["future"]) == (trail, 1)
    with aoserial.open(tmp_path / "x") as checkpoint:
        assert checkpoint.metadata["note"] == "mine"


def test_inert_tensors_are_carried_as_they_are(ours, pickled, tmp_path):
    assert convert(inert_of(ours), tmp_path / "x.pt").inert == 1
    convert(tmp_path / "x.pt", tmp_path / "back")
    held, expected = (
        aoserial.load(tmp_path / "back", strict=False),
        aoserial.load(ours, strict=False),
    )
    assert repr(held["m.weight"]) == repr(expected["m.weight"])
    torch.save({"w": Wrapper(torch.ones(3, 2)), "n": 1}, pickled)
    assert convert(pickled, tmp_path / "y.pt").inert == 1
    with aoserial.open(pickled) as before, aoserial.open(tmp_path / "y.pt") as after:
        assert repr(after.tree) == repr(before.tree)


def test_what_loses_something_on_the_way_is_refused_and_named(tmp_path):
    lossy = FIXTURES / "torchao-0.13.0/fbgemm_int4/model.pt"
    convert(lossy, tmp_path / "x")  # this one does not
    lossy = next(pickled_cases("fbgemm_fp8")) / "model.pt"
    with pytest.raises(LossyMigrationError, match="leave_fbgemm_fp8.*convert to plain"):
        convert(lossy, tmp_path / "y")
    assert not (tmp_path / "y").exists()
    (note,) = convert(lossy, tmp_path / "y", to="plain").notes
    assert note.startswith("lossy: leave_fbgemm_fp8")


# -- plain --------------------------------------------------------------------------------------


def test_plain_is_what_quantized_tensors_stand_for_and_ties_stay(ours, tmp_path, weight):
    convert(ours, tmp_path / "x", to="plain")
    assert same_bytes(load_file(tmp_path / "x")["m.weight"], weight.dequantize())
    state = aoserial.load(tmp_path / "x")
    assert {type(tensor) for tensor in state.values()} == {torch.Tensor}
    assert state["m.weight"] is state["m.tied"]
    assert aoserial.verify(tmp_path / "x", deep=True)
    (step,) = envelope_of(tmp_path / "x")["trail"]
    assert (step["step"], step["from"], step["to"], step["count"]) == (
        *("dequantize", "aoserial.Int8Tensor@1", "torch.Tensor"),
        1,
    )


def test_a_plain_pickle_needs_nothing_but_torch_and_keeps_its_tree(pickled, tmp_path, weight):
    convert(pickled, tmp_path / "x.pt", to="plain")
    assert b"aoserial" not in (tmp_path / "x.pt").read_bytes()
    tree = torch.load(tmp_path / "x.pt", weights_only=True)
    assert same_bytes(tree["model"]["w"].data, weight.dequantize())
    assert tree["step"] == 7


def test_plain_refuses_inert_tensors_and_lists_them_all(tmp_path, ours):
    state = {name: Wrapper(torch.ones(3, 2)) for name in ("a", "b")}
    torch.save(state, tmp_path / "x.pt")
    with pytest.raises(Faults) as caught:
        convert(tmp_path / "x.pt", tmp_path / "y", to="plain")
    assert [fault.location.name for fault in caught.value.exceptions] == ["a", "b"]
    assert "test_converting.Wrapper' is registered, so nobody knows" in str(caught.value)
    with pytest.raises(UnknownTypeError, match="m.weight: is inert"):
        convert(inert_of(ours), tmp_path / "y", to="plain")
    assert not (tmp_path / "y").exists()


def test_plain_refuses_a_class_that_does_not_say_what_it_stands_for(tmp_path):
    @aoserial.register("converting.Mute", version=1)
    class Mute(aoserial.VersionedTensor):
        qdata: torch.Tensor

    aoserial.save({"w": Mute(torch.ones(2))}, tmp_path / "x")
    with pytest.raises(UnsupportedOperationError, match="w: .*converting.Mute does not say how"):
        convert(tmp_path / "x", tmp_path / "y", to="plain")


# -- torchao ------------------------------------------------------------------------------------


def test_to_torchao_writes_what_save_writes_and_ties_twice(ours, tmp_path, weight):
    (note,) = convert(ours, tmp_path / "x", to="torchao").notes
    assert note.endswith("no ties: 2 tensors were written once more")
    with aoserial.open(tmp_path / "x") as checkpoint:
        assert checkpoint.catalog.layout == "torchao"
        assert checkpoint.metadata["note"] == "mine"
    state = aoserial.load(tmp_path / "x")
    assert same_bytes(state["m.tied"].dequantize(), weight.dequantize())
    aoserial.save(aoserial.load(ours), tmp_path / "saved", layout="torchao")
    saved = load_file(tmp_path / "saved")
    assert saved.keys() == load_file(tmp_path / "x").keys()


def test_to_torchao_lists_all_that_has_no_place_there(tmp_path):
    nf4 = aoserial.NF4Tensor.from_float(torch.randn(64, 256))
    torch.save({"a.w": nf4, "b.w": Wrapper(torch.ones(3, 2))}, tmp_path / "x.pt")
    with pytest.raises(Faults) as caught:
        convert(tmp_path / "x.pt", tmp_path / "y", to="torchao")
    assert {fault.location.name for fault in caught.value.exceptions} == {"a.w", "b.w"}
    assert not (tmp_path / "y").exists()


# -- what is refused before anything is written ---------------------------------------------------


def test_a_target_that_is_none_and_a_pickle_for_torchao_are_refused(ours, tmp_path):
    with pytest.raises(OptionError, match="none of safetensors, pt, torchao, plain"):
        convert(ours, tmp_path / "x", to="zip")
    with pytest.raises(OptionError, match=r"name DST \*.safetensors"):
        convert(ours, tmp_path / "x.pt", to="torchao")
    with pytest.raises(OptionError, match="not of archives"):
        aoserial.save({"w": torch.ones(1)}, tmp_path / "x.pt", layout="torchao")
    assert not (tmp_path / "x.pt").exists()


def test_the_source_is_never_written_over(ours, tmp_path):
    (tmp_path / "link").symlink_to(ours)
    before = ours.read_bytes()
    with pytest.raises(PathError, match="the source itself"):
        convert(ours, tmp_path / "link")
    assert ours.read_bytes() == before


def test_a_dtype_that_the_format_lacks_is_refused(tmp_path):
    torch.save({"w": torch.ones(2, dtype=torch.complex128)}, tmp_path / "x.pt")
    with pytest.raises(UnsupportedTensorError, match="complex128"):
        convert(tmp_path / "x.pt", tmp_path / "y")
    assert not (tmp_path / "y").exists()


def test_progress_ends_at_all_bytes(ours, tmp_path):
    for name in ("x", "x.pt"):
        seen: list[tuple[int, int]] = []
        convert(
            ours, tmp_path / name, progress=lambda done, total, to=seen: to.append((done, total))
        )
        assert seen[-1][0] == seen[-1][1] == (tmp_path / name).stat().st_size


# -- migrate ------------------------------------------------------------------------------------


def test_migrate_to_a_pickles_name_writes_a_pickle(pickled, tmp_path):
    aoserial.migrate(pickled, tmp_path / "x.pt")
    assert torch.load(tmp_path / "x.pt", weights_only=True)["step"] == 7
    aoserial.migrate(tmp_path / "x.pt", tmp_path / "y.pt")
    assert (tmp_path / "x.pt").read_bytes() == (tmp_path / "y.pt").read_bytes()


def test_migrating_a_pickle_in_place_keeps_its_format(tmp_path):
    case = FIXTURES / "torchao-0.4.0/int8wo"
    copy = tmp_path / "copy"  # of a name that would call for the other
    copy.write_bytes((case / "model.pt").read_bytes())
    assert aoserial.migrate(copy, in_place=True).pending
    state = torch.load(copy, weights_only=True)
    assert isinstance(state["0.weight"], aoserial.Int8Tensor)
    assert not aoserial.plan(copy).pending


def test_migrating_to_a_pickle_stops_where_it_is_told_to(tmp_path):
    case = FIXTURES / "torchao-0.15.0/float8wo_v2/model.safetensors"
    aoserial.migrate(case, tmp_path / "x.pt", to="torchao.Float8Tensor@2")
    with aoserial.open(tmp_path / "x.pt") as checkpoint:
        assert checkpoint.record("0.weight").type == "torchao.Float8Tensor"
    assert same_bytes(
        aoserial.load(tmp_path / "x.pt")["0.weight"].dequantize(),
        aoserial.load(case)["0.weight"].dequantize(),
    )


# -- real files ---------------------------------------------------------------------------------


def assume_for(case: Path) -> dict[str, str]:
    told = described(case)
    answers = {}
    if told["torchao"] in ("0.16.0", "0.17.0") and "nvfp4" in case.name:
        answers["scale_product_dtype"] = "bfloat16"
    capability = str(told.get("cpu_capability")).lower()
    answers["int4_cpu_isa"] = capability if capability in ("avx512", "avx2") else "default"
    return answers


@pytest.mark.parametrize("case", list(pickled_cases()), ids=case_id)
def test_plain_values_of_every_release_are_torchaos_bit_for_bit(case, tmp_path):
    told = described(case)
    try:
        convert(case / "model.pt", tmp_path / "x", to="plain", assume=assume_for(case))
    except (UnknownTypeError, EraError):  # what does not load says so; other tests hold that to it
        pytest.skip("holds what nobody can read")
    assert {type(tensor) for tensor in aoserial.load(tmp_path / "x").values()} == {torch.Tensor}
    if told["structure_only"]:
        return
    state = aoserial.load(tmp_path / "x")
    expected = torch.load(case / "expected.pt", weights_only=True)["dequantized"]
    for name, tensor in expected.items():
        assert same_bytes(state[name.replace("/", ".")], tensor)
