"""The formulas, against tables and arithmetic done by hand."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st

from aoserial.errors import AoserialError, QuantizationError
from aoserial.kernels import dequantize_float8, dequantize_int8, quantize_float8, quantize_int8
from aoserial.kernels.arithmetic import block_max, cast_float8, expand

# dtype: exponent bits, bias, the codes that are not numbers (OCP OFP8 rev. 1.0; fnuz: LLVM APFloat)
FLOAT8 = {
    torch.float8_e4m3fn: (4, 7, {0x7F: math.nan, 0xFF: math.nan}),
    torch.float8_e5m2: (
        5,
        15,
        {
            **dict.fromkeys((125, 126, 127, 253, 254, 255), math.nan),
            0x7C: math.inf,
            0xFC: -math.inf,
        },
    ),
    torch.float8_e4m3fnuz: (4, 8, {0x80: math.nan}),
    torch.float8_e5m2fnuz: (5, 16, {0x80: math.nan}),
}


def value_of(code: int, dtype: torch.dtype) -> float:
    """What a float8 code stands for, from its bits."""
    exponent_bits, bias, special = FLOAT8[dtype]
    if code in special:
        return special[code]
    mantissa_bits = 7 - exponent_bits
    sign = -1 if code & 0x80 else 1
    exponent = (code & 0x7F) >> mantissa_bits
    fraction = Fraction(code & ((1 << mantissa_bits) - 1), 1 << mantissa_bits)
    significand = 1 + fraction if exponent else fraction
    return sign * float(significand * Fraction(2) ** (max(exponent, 1) - bias))


def all_codes(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(256).to(torch.uint8).view(dtype).reshape(16, 16)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_every_float8_code_means_what_its_bits_say(dtype: torch.dtype) -> None:
    scale = torch.full((16, 1), 0.375)
    found = dequantize_float8(
        all_codes(dtype), scale, block_size=(1, 16), dtype=torch.float32
    ).flatten()
    expected = torch.tensor([value_of(code, dtype) * 0.375 for code in range(256)])
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


def test_float8_is_multiplied_in_float32_and_rounded_once() -> None:
    qdata = torch.tensor([[1.125]]).to(torch.float8_e4m3fn)
    scale = torch.tensor(
        [[1.0 + 2**-9]]
    )  # 1.125 · (1 + 2⁻⁹) rounds up; a bfloat16 scale would be 1
    found = dequantize_float8(qdata, scale, block_size=(1, 1), dtype=torch.bfloat16)
    assert found.item() == torch.tensor(1.125 * (1.0 + 2**-9)).to(torch.bfloat16).item()


def test_int8_takes_the_zero_point_off_before_it_scales() -> None:
    qdata = torch.tensor([[-128, 0, 127]], dtype=torch.int8)
    found = dequantize_int8(
        qdata,
        torch.tensor([[0.5]]),
        torch.tensor([[-3]], dtype=torch.int8),
        block_size=(1, 3),
        dtype=torch.float32,
    )
    assert found.tolist() == [[-62.5, 1.5, 65.0]]


def test_int8_without_a_zero_point_equals_one_of_zero() -> None:
    qdata = torch.randint(-128, 128, (4, 6), dtype=torch.int8)
    scale = torch.rand(4, 1)
    zeros = torch.zeros(4, 1, dtype=torch.int8)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        kwargs = {"block_size": (1, 6), "dtype": dtype}
        assert torch.equal(
            dequantize_int8(qdata, scale, **kwargs), dequantize_int8(qdata, scale, zeros, **kwargs)
        )


def test_scales_of_ragged_blocks_reach_exactly_their_elements() -> None:
    scale = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    found = expand(scale, (2, 2), (3, 5)).expand(3, 5)
    assert found.tolist() == [
        [1.0, 1.0, 2.0, 2.0, 3.0],
        [1.0, 1.0, 2.0, 2.0, 3.0],
        [4.0, 4.0, 5.0, 5.0, 6.0],
    ]


def test_a_scale_that_broadcasts_is_not_repeated_in_memory() -> None:
    scale = torch.rand(4, 1)
    assert expand(scale, (1, 8), (4, 8)) is scale


def test_the_largest_of_a_ragged_block_ignores_the_padding() -> None:
    x = torch.tensor([[1.0, -7.0, 3.0], [-1.0, -2.0, -3.0]])
    assert block_max(x, (1, 2)).tolist() == [[1.0, 3.0], [-1.0, -3.0]]
    assert block_max(x.abs(), (2, 2)).tolist() == [[7.0, 3.0]]


@pytest.mark.parametrize("shape", [(0, 4), (4, 0)])
def test_a_weight_without_elements_quantizes_to_nothing(shape: tuple[int, int]) -> None:
    qdata, scale = quantize_int8(torch.zeros(shape), block_size=(1, 2))
    assert qdata.shape == shape
    assert scale.shape == (shape[0], shape[1] // 2)


def test_float8_quantizing_follows_the_formula() -> None:
    w = torch.randn(5, 7, dtype=torch.bfloat16)
    qdata, scale = quantize_float8(w, block_size=(2, 3), dtype=torch.float8_e4m3fn)
    for row in range(0, 5, 2):
        for column in range(0, 7, 3):
            block = w[row : row + 2, column : column + 3].float()
            expected = block.abs().max() / 448
            assert scale[row // 2, column // 3] == expected
            codes = (block / expected).clamp(-448, 448).to(torch.float8_e4m3fn)
            found = qdata[row : row + 2, column : column + 3]
            assert torch.equal(found.contiguous().view(torch.uint8), codes.view(torch.uint8))


def test_int8_quantizing_follows_the_formula_and_is_symmetric() -> None:
    w = torch.tensor([[0.0, 1.27, -1.27, 0.004, 0.017, 0.026]])
    qdata, scale = quantize_int8(w, block_size=(1, 6))
    assert scale.item() == (torch.tensor(1.27) / 127).item()
    expected = [round(float(v) / scale.double().item()) for v in w.flatten().double()]
    assert qdata.tolist() == [expected]
    negated, _ = quantize_int8(-w, block_size=(1, 6))
    assert torch.equal(negated, -qdata)


def test_ties_round_to_even() -> None:
    w = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]])
    qdata, _ = quantize_int8(w, block_size=(1, 6))
    assert qdata.tolist() == [[127, 0, 2, 2, 0, -2]]
    halves = torch.tensor([[448.0, 17.0, 19.0, 21.0, -17.0, -19.0]])  # e4m3 steps by 2 from 16 on
    codes, _ = quantize_float8(halves, block_size=(1, 6), dtype=torch.float8_e4m3fn)
    assert codes.float().tolist() == [[448.0, 16.0, 20.0, 20.0, -16.0, -20.0]]


@pytest.mark.parametrize("largest", [0.0, 1e-45, 1e-38, 3e38])
def test_the_smallest_and_largest_weights_stay_finite(largest: float) -> None:
    w = torch.tensor([[largest, -largest / 2, 0.0]])
    for qdata, scale in (
        quantize_int8(w, block_size=(1, 3)),
        quantize_float8(w, block_size=(1, 3), dtype=torch.float8_e5m2),
    ):
        assert torch.isfinite(qdata.float() * scale).all()
        assert (scale > 0).all()


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_weight_that_is_not_finite_is_refused(bad: float) -> None:
    w = torch.ones(2, 4)
    w[1, 2] = bad
    with pytest.raises(QuantizationError, match="infinity or NaN"):
        quantize_float8(w, block_size=(1, 4), dtype=torch.float8_e4m3fn)
    with pytest.raises(ValueError, match="infinity or NaN"):
        quantize_int8(w, block_size=(1, 4))


def test_what_is_no_weight_is_refused() -> None:
    with pytest.raises(AoserialError, match="floating point, not torch.int32"):
        quantize_int8(torch.ones(2, 2, dtype=torch.int32), block_size=(1, 2))
    with pytest.raises(AoserialError, match="no float8 dtype"):
        quantize_float8(torch.ones(2, 2), block_size=(1, 2), dtype=torch.int8)


@pytest.mark.parametrize("dtype", FLOAT8, ids=str)
def test_values_beyond_the_range_become_the_largest_finite_code(dtype: torch.dtype) -> None:
    limit = torch.finfo(dtype).max
    found = cast_float8(torch.tensor([1e9, -1e9, math.inf, limit]), dtype)
    assert found.float().tolist() == [limit, -limit, limit, limit]


@settings(deadline=None)
@given(
    rows=st.integers(1, 5),
    columns=st.integers(1, 9),
    block=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    seed=st.integers(0, 2**16),
)
def test_int8_is_off_by_half_a_step_at_most(
    rows: int, columns: int, block: tuple[int, int], seed: int
) -> None:
    w = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed))
    qdata, scale = quantize_int8(w, block_size=block)
    assert scale.shape == (-(-rows // block[0]), -(-columns // block[1]))
    found = dequantize_int8(qdata, scale, block_size=block, dtype=torch.float32)
    step = expand(scale, block, w.shape)
    assert ((found - w).abs() <= step * (0.5 + 1e-4)).all()
