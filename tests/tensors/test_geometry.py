"""Slices as arithmetic on shapes: a table, and a law over random shapes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.tensors import same_bytes

from aoserial.errors import BlockCutError, UnsupportedOperationError
from aoserial.schema import (
    BLOCKS,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)
from aoserial.tensors import Float8Tensor, Int8Tensor
from aoserial.tensors.geometry import clamp, cut, join, normalize, resize
from aoserial.tensors.layout import Layout, leading

INT4 = Schema(
    type="geometry.Int4",
    version=1,
    dims=("...", "N", "K"),
    fields=(
        tensor("qdata", "uint8", shape=("...", "N", "K/2")),
        tensor("scale", shape=BLOCKS),
        attribute("block_size", "list[int]"),
        optional_tensor("group_index", shape=("K",)),
        optional_tensor("sums", shape=("N", "K/group")),
        optional_attribute("group", "int", 4),
        optional_tensor("whole"),
    ),
)
SHAPES = {
    "qdata": (8, 16),
    "scale": (8, 4),
    "group_index": (32,),
    "sums": (8, 8),
    "whole": (3,),
}


def layout(schema: Schema, shape: tuple[int, ...], parts: dict, **attributes: object) -> Layout:
    rules = {field.name: field.shape for field in schema.tensors}
    return Layout(schema=schema, shape=shape, attributes=attributes, parts=parts, rules=rules)


def int4(columns: int = 32, **attributes: object) -> Layout:
    held = {"block_size": (1, 8), "group": 4, **attributes}
    return layout(INT4, (8, columns), SHAPES, **held)


def cut_int4(dim: int, start: int, stop: int, **attributes: object) -> tuple[dict, dict]:
    found = cut(int4(**attributes), dim, start, stop)
    return found.parts, found.attributes


@pytest.mark.parametrize(
    ("span", "parts"),
    [
        # rows: everything that has N
        ((0, 2, 5), {"qdata": (0, 2, 5), "scale": (0, 2, 5), "sums": (0, 2, 5)}),
        # columns: half the bytes, one scale in eight, each index, one sum in four
        (
            (1, 8, 24),
            {
                "qdata": (1, 4, 12),
                "scale": (1, 1, 3),
                "group_index": (0, 8, 24),
                "sums": (1, 2, 6),
            },
        ),
        # nothing at all
        (
            (1, 16, 16),
            {
                "qdata": (1, 8, 8),
                "scale": (1, 2, 2),
                "group_index": (0, 16, 16),
                "sums": (1, 4, 4),
            },
        ),
    ],
    ids=["rows", "columns", "empty"],
)
def test_each_part_is_cut_where_it_follows_the_dimension(
    span: tuple[int, int, int], parts: dict[str, tuple[int, int, int]]
) -> None:
    assert cut_int4(*span)[0] == parts


@pytest.mark.parametrize(
    ("bounds", "cut_at", "nearest"),
    [((0, 4), 4, (0, 8)), ((3, 8), 3, (0, 8)), ((8, 31), 31, (24, 32)), ((8, 12), 12, (8, 16))],
)
def test_a_cut_through_a_block_names_the_cuts_beside_it(
    bounds: tuple[int, int], cut_at: int, nearest: tuple[int, int]
) -> None:
    with pytest.raises(BlockCutError) as caught:
        cut_int4(1, *bounds)
    assert f"a cut at {cut_at} of 32" in str(caught.value)
    assert f"nearest cuts are {nearest[0]} and {nearest[1]}" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_one_block_that_covers_the_dimension_is_shared_and_shrinks() -> None:
    parts, attributes = cut_int4(1, 6, 20, block_size=(1, 32), group=64)
    assert parts["scale"] == (1, 0, 1)
    assert parts["sums"] == (1, 0, 1)
    assert attributes == {"block_size": (1, 14), "group": 14}


def test_a_shared_block_does_not_make_a_byte_divisible() -> None:
    with pytest.raises(BlockCutError, match="2 elements that share one of 'qdata'.* 2 and 4"):
        cut_int4(1, 3, 20, block_size=(1, 32), group=64)


def test_a_list_of_block_sizes_stays_a_list_and_is_not_changed_in_place() -> None:
    sizes = [1, 32]
    _, attributes = cut_int4(1, 0, 16, block_size=sizes, group=64)
    assert attributes["block_size"] == [1, 16]
    assert sizes == [1, 32]


@pytest.mark.parametrize(
    ("dims", "rule", "message"),
    [
        (None, ("N", "K"), "declare `dims`, and the `shape` of each tensor field"),
        (("N", "K"), None, "declare `dims`, and the `shape` of qdata"),
    ],
)
def test_a_schema_that_does_not_say_how_its_codes_follow_is_not_sliced(
    dims: tuple[str, ...] | None, rule: tuple[str, ...] | None, message: str
) -> None:
    """Or else the scales would be cut and the codes stay whole."""
    fields = (tensor("qdata", shape=rule), tensor("scale", shape=BLOCKS))
    schema = Schema(type="geometry.Bare", version=1, dims=dims, fields=fields)
    with pytest.raises(UnsupportedOperationError, match=message):
        cut(layout(schema, (4, 4), {"qdata": (4, 4), "scale": (4, 1)}), 0, 0, 2)


def test_a_part_whose_rule_names_no_such_dimension_stays_whole() -> None:
    fields = (tensor("qdata", shape=("N", "K")), tensor("codebook", shape=("entries", "2")))
    schema = Schema(type="geometry.Codebook", version=1, dims=("N", "K"), fields=fields)
    found = cut(layout(schema, (4, 4), {"qdata": (4, 4), "codebook": (16, 2)}), 0, 0, 2)
    assert found.parts == {"qdata": (0, 0, 2)}


def test_codes_that_share_a_byte_are_not_taken_for_a_block() -> None:
    """Even if one byte holds all of a dimension: a slice of it would have half a byte."""
    fields = (
        tensor("qdata", "uint8", shape=("N", "K/per_byte")),
        attribute("per_byte", "int"),
        tensor("sums", shape=("N", "K/group")),
        attribute("group", "int"),
    )
    schema = Schema(type="geometry.Packed", version=1, dims=("N", "K"), fields=fields)
    parts = {"qdata": (4, 1), "sums": (4, 1)}
    with pytest.raises(BlockCutError, match="share one of 'qdata'"):
        cut(layout(schema, (4, 2), parts, per_byte=2, group=2), 1, 0, 1)
    found = cut(layout(schema, (4, 2), parts, per_byte=2, group=2), 1, 0, 0)
    assert found.attributes == {"group": 1}


def test_joining_undoes_a_cut_where_the_pieces_share_what_they_shared() -> None:
    pieces = [int4(16, block_size=(1, 16), group=4), int4(16, block_size=(1, 16), group=4)]
    together = join(pieces, 1, shared=["scale", "whole"])
    assert together.parts == {"qdata": 1, "group_index": 0, "sums": 1}
    assert together.attributes == {"block_size": (1, 32), "group": 4}
    apart = join(pieces, 1, shared=["whole"])
    assert apart.parts == {"qdata": 1, "scale": 1, "group_index": 0, "sums": 1}
    assert apart.attributes == {"block_size": (1, 16), "group": 4}


def test_what_belongs_to_a_tensor_as_a_whole_is_joined_only_where_it_is_shared() -> None:
    with pytest.raises(UnsupportedOperationError, match="'whole' belongs to each tensor"):
        join([int4(), int4()], 1)
    with pytest.raises(UnsupportedOperationError, match="'group_index' belongs to each tensor"):
        join([int4(), int4()], 0, shared=["whole"])
    assert "group_index" not in join([int4(), int4()], 0, shared=["whole", "group_index"]).parts


@pytest.mark.parametrize(
    ("lengths", "sizes", "fits"),
    [
        ((16, 16), (8, 8), True),
        ((16, 4), (8, 4), True),  # the last may be smaller than a block,
        ((4, 16), (4, 8), False),  # any other may not
        ((12, 16), (8, 8), False),
        ((16, 16), (8, 16), False),
        ((8, 8), (64, 64), True),  # a block that is longer than what is there ends with it
    ],
)
def test_seams_lie_between_blocks_of_one_size(
    lengths: tuple[int, int], sizes: tuple[int, int], fits: bool
) -> None:
    pieces = [
        int4(length, block_size=(1, size), group=2)
        for length, size in zip(lengths, sizes, strict=True)
    ]
    if not fits:
        with pytest.raises(BlockCutError, match="one of 'scale' for each"):
            join(pieces, 1, shared=["whole"])
        return
    found = join(pieces, 1, shared=["whole"])
    assert found.attributes["block_size"] == (1, min(sizes[0], lengths[0]))


def test_tensors_that_differ_in_more_than_a_length_are_not_joined() -> None:
    for other in (
        int4(block_size=(2, 8)),
        layout(INT4, (4, 32), SHAPES, block_size=(1, 8), group=4),
    ):
        with pytest.raises(UnsupportedOperationError, match="differ in more"):
            join([int4(), other], 1, shared=["whole"])


def test_another_size_has_parts_of_other_shapes() -> None:
    found = resize(int4(block_size=(8, 8)), (6, 44))
    assert found.parts == {
        "qdata": (6, 22),
        "scale": (1, 6),
        "group_index": (44,),
        "sums": (6, 11),
        "whole": (3,),
    }
    assert found.attributes == {"block_size": (6, 8), "group": 4}
    with pytest.raises(BlockCutError, match="do not fill 'qdata'"):
        resize(int4(), (8, 31))
    with pytest.raises(UnsupportedOperationError, match="number of dimensions stays"):
        resize(int4(), (8,))


def test_leading_dimensions_are_those_the_schema_does_not_name() -> None:
    assert [leading(INT4, rank) for rank in (2, 3, 4)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, (0, 10)),
        (2, 2**63 - 1, (2, 10)),
        (-3, None, (7, 10)),
        (-30, -20, (0, 0)),
        (8, 3, (8, 8)),
        (40, 50, (10, 10)),
    ],
)
def test_bounds_mean_what_they_mean_in_python(
    start: int | None, stop: int | None, expected: tuple[int, int]
) -> None:
    assert clamp(start, stop, 10) == expected


def test_dimensions_count_from_either_end() -> None:
    assert [normalize(dim, 3) for dim in (0, 2, -1, -3)] == [0, 2, 2, 0]
    for dim in (3, -4):
        with pytest.raises(IndexError, match="out of range"):
            normalize(dim, 3)


@settings(deadline=None)  # the first operator on a subclass imports much of torch
@given(
    shape=st.tuples(st.integers(1, 3), st.integers(1, 7), st.integers(1, 12)),
    block=st.tuples(st.integers(1, 2), st.integers(1, 4), st.integers(1, 13)),
    is_float8=st.booleans(),
    dim=st.integers(-3, 2),
    bounds=st.tuples(st.integers(-13, 13), st.integers(-13, 13)),
)
def test_slicing_then_dequantizing_is_dequantizing_then_slicing(
    shape: tuple[int, int, int],
    block: tuple[int, int, int],
    is_float8: bool,
    dim: int,
    bounds: tuple[int, int],
) -> None:
    w = torch.randn(shape, dtype=torch.bfloat16)
    cls = Float8Tensor if is_float8 else Int8Tensor
    weight = cls.from_float(w, granularity=block)
    index = [slice(None)] * 3
    index[dim] = slice(*bounds)
    expected = weight.dequantize()[tuple(index)]
    first, last = clamp(*bounds, shape[dim])
    size = weight.block_size[dim]
    allowed = size >= shape[dim] or all(b % size == 0 or b == shape[dim] for b in (first, last))
    is_one_block = first // size == (last - 1) // size and last - first < size
    allowed |= dim % 3 == 0 and is_one_block
    if not allowed:
        with pytest.raises(BlockCutError, match=f"{size} elements"):
            weight[tuple(index)]
        return
    found = weight[tuple(index)]
    assert same_bytes(found.dequantize(), expected)
    # what a slice holds is what its schema allows: it can be saved, and made again
    again = cls(found.qdata, found.scale, found.block_size, dtype=found.dtype)
    assert again._same_metadata(found)


# -- parts that lie flat ------------------------------------------------------------------------

FLAT = Schema(
    type="geometry.Flat",
    version=1,
    dims=("...", "K"),
    fields=(
        tensor("codes", shape=("numel/2",)),
        tensor("scale", shape=("numel/block_size",)),
        attribute("block_size", "int"),
    ),
)


def flat(shape: tuple[int, ...], block_size: int) -> Layout:
    count = torch.Size(shape).numel()
    parts = {"codes": (count // 2,), "scale": (count // block_size,)}
    return layout(FLAT, shape, parts, block_size=block_size)


@pytest.mark.parametrize(
    ("block_size", "codes", "scale"),
    [(8, (16, 32), (4, 8)), (16, (16, 32), (2, 4)), (32, (16, 32), (1, 2))],
)
def test_rows_are_a_range_of_what_lies_flat(block_size, codes, scale):
    found = cut(flat((8, 16), block_size), 0, 2, 4)
    assert found.parts == {"codes": (0, *codes), "scale": (0, *scale)}
    assert found.attributes == {}


def test_what_lies_flat_is_cut_between_blocks_of_its_first_dimension_alone():
    with pytest.raises(BlockCutError, match=r"a cut at 3 of 8 .* nearest cuts are 2 and 4"):
        cut(flat((8, 16), 32), 0, 0, 3)
    with pytest.raises(BlockCutError, match="dimension 1 of geometry.Flat@1 stays whole: 'codes'"):
        cut(flat((8, 16), 8), 1, 0, 8)
    assert cut(flat((8, 16), 8), 1, 0, 16).parts == {}
    assert cut(flat((1, 8, 16), 8), 1, 2, 4).parts["scale"] == (0, 4, 8)


def test_what_lies_flat_is_joined_behind_one_another():
    assert join([flat((2, 16), 32), flat((4, 16), 32)], 0).parts == {"codes": 0, "scale": 0}
    with pytest.raises(BlockCutError, match="stays whole"):
        join([flat((2, 16), 8)] * 2, 1)


@pytest.mark.parametrize(
    ("shape", "new", "codes", "scale"),
    [
        ((4, 16), (6, 16), 48, 12),
        ((1, 4, 16), (3, 4, 16), 96, 24),
        ((1, 1, 16), (2, 3, 16), 48, 12),
        ((4, 16), (0, 16), 0, 0),
    ],
)
def test_another_size_has_flat_parts_of_another_length(shape, new, codes, scale):
    found = resize(flat(shape, 8), new)
    assert found.parts == {"codes": (codes,), "scale": (scale,)}
    assert found.attributes == {}


def test_flat_parts_of_another_width_are_refused():
    with pytest.raises(BlockCutError, match="stays whole"):
        resize(flat((4, 16), 8), (4, 32))
