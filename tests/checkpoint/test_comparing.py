"""`compare`: what two checkpoints do not hold alike, tensor by tensor."""

from __future__ import annotations

import math

import pytest
import torch
from support.cases import FIXTURES
from support.files import edit_envelope

import aoserial
from aoserial.checkpoint.comparing import FieldDifference, ValueDifference, compare
from aoserial.checkpoint.converting import convert
from aoserial.checkpoint.distances import apart

CASE = FIXTURES / "torchao-0.15.0/float8wo_v2/model.safetensors"


@pytest.fixture
def weight():
    torch.manual_seed(0)
    return aoserial.Int8Tensor.from_float(torch.randn(8, 16))


@pytest.fixture
def save(tmp_path):
    """Saves a state dict under a short name, and gives the path."""

    def save(name, state):
        aoserial.save(state, tmp_path / name)
        return tmp_path / name

    return save


def changed(weight, part, at, by):
    """The weight with one element of one part changed."""
    held = {name: getattr(weight, name).clone() for name in ("qdata", "scale")}
    held[part][at] += by
    return aoserial.Int8Tensor(**held, block_size=weight.block_size, dtype=weight.dtype)


def test_a_checkpoint_equals_itself_in_every_format(save, tmp_path, weight):
    state = {"m.weight": weight, "m.tied": weight, "m.bias": torch.tensor([1.0, math.nan])}
    path = save("a", state)
    assert compare(path, path)
    convert(path, tmp_path / "a.pt")
    found = compare(path, tmp_path / "a.pt")
    assert found
    assert (found.equal, found.differing) == (3, ())


def test_names_that_one_has_alone_are_listed(save):
    one, other = (
        save("a", {"x": torch.ones(1), "y": torch.ones(1)}),
        save("b", {"y": torch.ones(1)}),
    )
    assert (compare(one, other).only_left, compare(one, other).only_right) == (("x",), ())
    assert (compare(other, one).only_left, compare(other, one).only_right) == ((), ("x",))


def test_a_changed_code_shows_in_the_part_and_in_what_the_tensor_stands_for(save, weight):
    other = changed(weight, "qdata", (2, 3), 1)
    (found,) = compare(save("a", {"w": weight}), save("b", {"w": other})).differing
    assert found.fields == ()
    gap = (weight.dequantize()[2, 3] - other.dequantize()[2, 3]).abs().item()
    larger = max(weight.dequantize()[2, 3].abs().item(), other.dequantize()[2, 3].abs().item())
    assert found.parts.keys() == {"qdata"}
    assert (found.parts["qdata"].unequal, found.parts["qdata"].max_absolute) == (1, 1)
    assert found.values == ValueDifference(
        elements=128, unequal=1, max_absolute=gap, max_relative=pytest.approx(gap / larger)
    )


def test_fields_that_differ_are_named_and_values_compared_all_the_same(save, weight):
    groups = aoserial.Int8Tensor(
        weight.qdata,
        weight.scale.expand(8, 2).contiguous(),
        (1, 8),
        act_pre_scale=torch.ones(16),
        dtype=weight.dtype,
    )
    (found,) = compare(save("a", {"w": weight}), save("b", {"w": groups})).differing
    assert found.fields == (
        FieldDifference(field="attributes.block_size", left="(1, 16)", right="(1, 8)"),
        FieldDifference(field="parts.scale", left="float32[8, 1]", right="float32[8, 2]"),
        FieldDifference(field="parts.act_pre_scale", left="-", right="float32[16]"),
    )
    assert (found.parts, found.values, found.note) == ({}, None, "")


def test_a_migrated_file_differs_in_its_type_alone(tmp_path):
    aoserial.migrate(CASE, tmp_path / "new")
    found = compare(CASE, tmp_path / "new")
    (weight,) = found.differing
    assert [field.field for field in weight.fields] == ["type"]
    assert weight.fields[0].right == "aoserial.Float8Tensor@1"
    assert (weight.values, weight.note) == (None, "")
    assert found.equal == 1


def test_a_dequantized_file_holds_the_same_values(save, tmp_path, weight):
    path = save("a", {"w": weight})
    convert(path, tmp_path / "plain", to="plain")
    (found,) = compare(path, tmp_path / "plain").differing
    assert [(field.field, field.right) for field in found.fields] == [("type", "torch.Tensor")]
    assert (found.values, found.note) == (None, "")


def test_a_tie_that_is_lost_is_a_difference_under_each_name_but_not_another_order_of_names(save):
    x = torch.ones(2)
    tied, again = save("a", {"x": x, "y": x}), save("b", {"y": x, "x": x})
    apart = save("c", {"x": x, "y": x.clone()})
    assert compare(tied, again)
    found = compare(tied, apart).differing
    assert [(one.name, one.fields[0].field, one.fields[0].left) for one in found] == [
        ("x", "tied with", "y"),
        ("y", "tied with", "x"),
    ]


def test_inert_tensors_are_compared_by_their_bits(save, weight):
    def unknown(path):
        return edit_envelope(path, lambda e: e["schemas"][0].update(type="gone.Tensor"))

    one, same = (unknown(save(name, {"w": weight})) for name in ("a", "b"))
    other = unknown(save("c", {"w": changed(weight, "scale", (1, 0), 0.5)}))
    assert compare(one, same)
    (found,) = compare(one, other).differing
    assert found.parts["scale"].unequal == 1
    assert found.values is None
    assert "inert" in found.note


def test_a_tensor_that_cannot_be_read_does_not_keep_the_others_from_being_compared(save):
    one, other = (
        save("a", {"f": torch.ones(2).bool(), "x": torch.ones(1)}),
        save("b", {"f": torch.ones(2).bool(), "x": torch.zeros(1)}),
    )
    raw = bytearray(one.read_bytes())
    assert raw[-2:] == b"\1\1"
    raw[-1] = 2
    one.write_bytes(raw)
    found = {difference.name: difference for difference in compare(one, other).differing}
    assert "bool" in found["f"].note
    assert found["x"].values.max_absolute == 1


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([1.0, math.nan, math.inf], [1.0, math.nan, math.inf], None),
        ([0.0], [-0.0], (0, 0.0, 0.0)),
        ([1.0, 2.0], [1.0, 4.0], (1, 2.0, 0.5)),
        ([1.0, 3.0], [-1.0, 3.0], (1, 2.0, 2.0)),
        ([math.nan], [1.0], (1, math.inf, math.inf)),
        ([math.inf], [-math.inf], (1, math.inf, math.inf)),
    ],
)
def test_how_far_values_are_apart(left, right, expected):
    found = apart(torch.tensor(left), torch.tensor(right))
    if expected is None:
        assert found is None
    else:
        assert (found.unequal, found.max_absolute, found.max_relative) == expected


def test_integers_too_large_for_a_float_are_told_apart():
    left, right = torch.tensor([2**62]), torch.tensor([2**62 + 1])
    assert apart(left, right).unequal == 1


def test_codes_that_are_no_numbers_are_counted():
    left = torch.zeros(4, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    right = torch.tensor([0, 1, 0, 0], dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    found = apart(left, right)
    assert (found.elements, found.unequal, found.max_absolute) == (4, 1, None)


def test_large_tensors_are_compared_in_pieces():
    left = torch.zeros((1 << 20) + 3)
    right = left.clone()
    right[-1], right[0] = 1, 0.5
    found = apart(left, right)
    assert (found.unequal, found.max_absolute) == (2, 1)
