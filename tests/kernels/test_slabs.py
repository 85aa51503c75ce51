"""Large weights are computed a slab of rows at a time; nothing may show of it."""

import pytest
import torch
from support.tensors import same_bytes

from aoserial.kernels import arithmetic
from aoserial.kernels.arithmetic import slabs

BLOCKS = [(1, 64), (4, 16), (1, 8), (6, 64)]


@pytest.fixture(autouse=True)
def small_slabs(monkeypatch):
    monkeypatch.setattr(slabs, "_SLAB", 256)  # four rows of the weight below


def assert_same(left, right):
    left, right = (x if isinstance(x, tuple) else (x,) for x in (left, right))
    for one, other in zip(left, right, strict=True):
        assert (one is None) == (other is None)
        assert one is None or same_bytes(one, other)


def whole(function):
    """The function without its slabs."""
    return function.__wrapped__


@pytest.mark.parametrize("block", BLOCKS, ids=str)
@pytest.mark.parametrize(
    ("quantize", "dequantize", "options", "more"),
    [
        ("quantize_float8", "dequantize_float8", {"dtype": torch.float8_e4m3fn}, {}),
        ("quantize_int8", "dequantize_int8", {}, {}),
        (
            "quantize_intx",
            "dequantize_intx",
            {"bit_width": 5, "zero_domain": "int"},
            {"zero_domain": "int"},
        ),
        ("quantize_int4", "dequantize_int4", {"zero_domain": "float"}, {"zero_domain": "float"}),
    ],
)
def test_slabs_give_the_bits_of_the_whole(block, quantize, dequantize, options, more):
    w = torch.randn(30, 64, generator=torch.Generator().manual_seed(1)) * 3
    made = getattr(arithmetic, quantize)(w, block_size=block, **options)
    assert_same(made, whole(getattr(arithmetic, quantize))(w, block_size=block, **options))
    read = {"block_size": block, "dtype": torch.bfloat16, **more}
    function = getattr(arithmetic, dequantize)
    assert_same(function(*made, **read), whole(function)(*made, **read))


def test_a_scale_for_each_matrix_of_a_stack_goes_with_its_slab():
    w = torch.randn(10, 4, 32)
    per_tensor = torch.rand(10, 1, 1) + 0.5
    options = {"block_size": (1, 1, 16)}
    made = arithmetic.quantize_nvfp4(w, per_tensor, **options)
    assert_same(made, whole(arithmetic.quantize_nvfp4)(w, per_tensor, **options))


def test_one_block_over_all_rows_is_not_cut():
    w = torch.randn(30, 64)
    made = arithmetic.quantize_int8(w, block_size=(30, 64))
    assert made[1].shape == (1, 1)
    assert_same(made, whole(arithmetic.quantize_int8)(w, block_size=(30, 64)))
