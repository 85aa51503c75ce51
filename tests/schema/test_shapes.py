import pytest

from aoserial.errors import FieldError, SchemaError
from aoserial.schema.shapes import BLOCKS, ShapeMatch, blocks, check_rule


def bind(*pairs, attributes=None, logical=()):
    shapes = ShapeMatch(logical, attributes or {})
    for rule, shape in pairs:
        shapes.match(rule, shape)
    return shapes.lengths


def test_a_name_has_the_same_length_wherever_it_stands():
    assert bind((("N", "K"), (4, 8)), (("N",), (4,))) == {"N": 4, "K": 8}
    with pytest.raises(FieldError, match=r"\[5\], expected \[N\] with N = 4, not 5"):
        bind((("N", "K"), (4, 8)), (("N",), (5,)))


def test_a_divided_name_stands_for_packed_codes():
    assert bind((("N", "K/2"), (4, 8))) == {"N": 4, "K": 16}
    with pytest.raises(FieldError, match="K = 15"):
        bind((("N", "K"), (4, 15)), (("N", "K/2"), (4, 8)))


def test_a_divisor_may_be_an_integer_attribute():
    assert bind((("K/group",), (4,)), attributes={"group": 32})["K"] == 128
    with pytest.raises(FieldError, match="attribute group is None"):
        bind((("K/group",), (4,)), attributes={"group": None})


def test_several_divisors_divide_one_after_the_other():
    assert bind((("K/2/group",), (4,)), attributes={"group": 16})["K"] == 128


def test_numel_counts_all_elements_of_the_logical_shape():
    shapes = {"attributes": {"block_size": 8}, "logical": (4, 16)}
    bind((("numel/2",), (32,)), (("numel/block_size",), (8,)), **shapes)
    with pytest.raises(FieldError, match="numel = 64, not 56"):
        bind((("numel/block_size",), (7,)), **shapes)
    with pytest.raises(FieldError, match="expected"):
        bind((("numel/2",), (4, 8)), **shapes)


def test_leading_dimensions_are_the_same_wherever_dots_stand():
    assert bind((("...", "N", "K"), (2, 3, 4, 8)))["..."] == (2, 3)
    with pytest.raises(FieldError, match=r"\.\.\. = \[2\], not \[3\]"):
        bind((("...", "N"), (2, 4)), (("...", "N"), (3, 4)))


def test_a_number_must_be_that_length():
    bind((("4", "N"), (4, 9)))
    with pytest.raises(FieldError, match="expected"):
        bind((("4", "N"), (5, 9)))


def test_the_rank_must_be_that_of_the_rule():
    for shape in [(4,), (4, 8, 1)]:
        with pytest.raises(FieldError, match="expected"):
            bind((("N", "K"), shape))
    with pytest.raises(FieldError, match="expected"):
        bind((("...", "N", "K"), (4,)))


@pytest.mark.parametrize(
    ("shape", "block", "expected"),
    [
        ((32, 64), (1, 64), (32, 1)),
        ((32, 64), (32, 64), (1, 1)),
        ((130, 128), (128, 128), (2, 1)),
        ((2, 32, 64), (1, 1, 32), (2, 32, 2)),
        ((0, 64), (1, 64), (0, 1)),
    ],
)
def test_blocks_are_the_logical_shape_over_the_block_size_rounded_up(shape, block, expected):
    assert blocks(shape, {"block_size": block}) == expected
    ShapeMatch(shape, {"block_size": block}).match(BLOCKS, expected)


@pytest.mark.parametrize("block", [None, (64,), (0, 64), (-1, 64), (1.0, 64), (1, 64, 1)])
def test_a_block_size_that_does_not_fit_the_shape_is_refused(block):
    with pytest.raises(FieldError, match="block_size"):
        blocks((32, 64), {"block_size": block})


@pytest.mark.parametrize(
    "rule", [("N", "K/0x"), ("N K",), ("N", "..."), ("K-1",), ("",), ("N", "numel/2")]
)
def test_a_malformed_rule_is_refused_where_it_is_declared(rule):
    if rule == ("N", "K/0x"):  # 0x is a word, so it would be an attribute's name
        check_rule(rule)
        return
    with pytest.raises(SchemaError):
        check_rule(rule)
