"""NF4: the arithmetic of codes, of scales quantized twice, and of tables."""

from __future__ import annotations

import pytest
import torch

from aoserial.errors import QuantizationError
from aoserial.kernels import NF4_ZERO, dequantize_nf4, look_up, look_up_pairs, quantize_nf4

SIZES = {"block_size": 8, "scaler_block_size": 4}


def round_trip(w: torch.Tensor) -> torch.Tensor:
    return dequantize_nf4(*quantize_nf4(w, **SIZES), **SIZES).view(w.shape)


def test_the_first_of_two_codes_is_in_the_high_nibble() -> None:
    table = torch.arange(16.0)
    packed = torch.tensor([0x1F, 0xA0], dtype=torch.uint8)
    assert look_up_pairs(packed, table).tolist() == [1, 15, 10, 0]
    assert look_up(torch.tensor([[255]], dtype=torch.uint8), torch.arange(256.0)).tolist() == [
        [255]
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_values_come_back_to_the_nearest_entry_of_the_table(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    w = torch.randn(16, 32).to(dtype)
    found = round_trip(w)
    assert found.dtype == dtype
    widest_gap = 1 - 0.6962  # half of it, and the error of a scale
    largest = w.abs().view(-1, 8).amax(-1, keepdim=True).expand(-1, 8).reshape(w.shape)
    assert ((found - w).abs() <= largest * (widest_gap / 2 + 0.02)).all()


def test_the_formula_is_that_of_the_definition() -> None:
    table = torch.linspace(-1, 1, 16)
    packed = torch.tensor([0x0F, 0x37, 0x81, 0xFF], dtype=torch.uint8)
    scalers = torch.tensor([-3, 5], dtype=torch.int8)
    factor, mean = torch.tensor([7.0]), torch.tensor(0.5)
    found = dequantize_nf4(packed, scalers, factor, mean, table, block_size=4, scaler_block_size=2)
    scales = [torch.tensor(-3.0) / 7 + 0.5, torch.tensor(5.0) / 7 + 0.5]
    codes = [0, 15, 3, 7, 8, 1, 15, 15]
    assert found.tolist() == [float(table[c] * scales[n // 4]) for n, c in enumerate(codes)]


def test_a_block_of_zeros_stays_zeros() -> None:
    w = torch.randn(8, 16)
    w[2] = 0
    assert not round_trip(w)[2].any()
    assert quantize_nf4(w, **SIZES)[0].view(8, 8)[2].tolist() == [NF4_ZERO * 0x11] * 8


def test_blocks_with_equal_scales_keep_them() -> None:
    w = torch.tensor([-2.0, 2.0]).repeat(64)
    assert torch.equal(round_trip(w), w)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_what_no_code_stands_for_is_refused(value: float) -> None:
    with pytest.raises(QuantizationError, match="infinity or NaN"):
        quantize_nf4(torch.full((8, 16), value), **SIZES)
    with pytest.raises(QuantizationError, match="floating point"):
        quantize_nf4(torch.ones(8, 16, dtype=torch.int8), **SIZES)


@pytest.mark.parametrize("shape", [(3, 16), (0,)])
def test_elements_that_are_not_whole_blocks_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(QuantizationError, match="are not whole blocks of 8 with 4"):
        quantize_nf4(torch.ones(shape), **SIZES)
