"""MX: scales chosen as the specification says, elements times a power of two."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.elements import half_step
from support.tensors import same_bytes

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels import dequantize_mx, quantize_mx
from aoserial.kernels.arithmetic import (
    ELEMENTS,
    SCALE_MODES,
    e8m0,
    element_of,
    expand,
    mx_scale,
    pack_nibbles,
    through_mx,
)

FP4 = "float4_e2m1fn_x2"


def scale_byte(largest: float, element: str, mode: str) -> int:
    return int(mx_scale(torch.tensor(largest), element_of(element), mode))


@pytest.mark.parametrize(
    ("element", "largest", "floor", "ceil", "even", "rceil"),
    [
        # fp4: emax 2, largest 6, one mantissa bit: even rounds up from 1.75
        (FP4, 4.0, 0, 0, 0, 0),
        (FP4, 6.0, 0, 1, 0, 0),
        (FP4, 6.5, 0, 1, 0, 1),
        (FP4, 6.99, 0, 1, 0, 1),
        (FP4, 7.0, 0, 1, 1, 1),
        (FP4, 8.0, 1, 1, 1, 1),
        # e4m3: emax 8, largest 448, three mantissa bits: even rounds up from 1.9375
        ("float8_e4m3fn", 448.0, 0, 1, 0, 0),
        ("float8_e4m3fn", 449.0, 0, 1, 0, 1),
        ("float8_e4m3fn", 495.0, 0, 1, 0, 1),
        ("float8_e4m3fn", 496.0, 0, 1, 1, 1),
        ("float8_e5m2", 57344.0, 0, 1, 0, 0),
        ("float8_e5m2", 2.0**-20, -35, -35, -35, -35),
        ("float6_e2m3fn", 7.5, 0, 1, 0, 0),
        ("float6_e3m2fn", 28.0, 0, 1, 0, 0),
        ("float6_e3m2fn", 30.0, 0, 1, 1, 1),
    ],
)
def test_the_four_ways_to_choose_a_scale(
    element: str, largest: float, floor: int, ceil: int, even: int, rceil: int
) -> None:
    expected = dict(
        zip(("floor", "ceil", "even", "rceil"), (floor, ceil, even, rceil), strict=True)
    )
    for mode, power in expected.items():
        assert scale_byte(largest, element, mode) == power + 127, mode


@pytest.mark.parametrize("mode", SCALE_MODES)
@pytest.mark.parametrize("element", ELEMENTS)
def test_the_ends_of_the_scale(element: str, mode: str) -> None:
    assert scale_byte(0.0, element, mode) == 0
    assert scale_byte(1e-45, element, mode) == 0
    assert scale_byte(math.inf, element, mode) == 255
    assert scale_byte(math.nan, element, mode) == 255
    assert scale_byte(torch.finfo(torch.float32).max, element, mode) < 255


def test_another_mode_is_refused() -> None:
    with pytest.raises(QuantizationError, match="'nearest' is none of floor, ceil, even, rceil"):
        scale_byte(1.0, FP4, "nearest")


@settings(deadline=None)
@given(
    largest=st.floats(min_value=2.0**-100, max_value=2.0**120, width=32),
    element=st.sampled_from(sorted(ELEMENTS)),
)
def test_scales_in_exact_arithmetic(largest: float, element: str) -> None:
    form, exact = element_of(element), Fraction(largest)

    def power(mode: str) -> Fraction:
        return Fraction(2) ** (scale_byte(largest, element, mode) - 127)

    emax = math.floor(math.log2(form.largest))
    floor = power("floor") * 2**emax
    assert floor <= exact < 2 * floor
    ceil = power("ceil") * 2**emax
    assert ceil / 2 < exact <= ceil
    assert power("even") in (power("floor"), 2 * power("floor"))
    assert power("rceil") / 2 < exact / Fraction(form.largest) <= power("rceil")


def test_rceil_is_exact_just_above_a_power_of_two() -> None:
    """Where the float32 logarithm of torchao's CPU code gives the power itself."""
    largest = torch.tensor(6.0 * 2**20).nextafter(torch.tensor(math.inf))
    assert math.ceil(torch.log2(largest / 6)) == 20
    assert scale_byte(largest.item(), FP4, "rceil") - 127 == 21


def test_fp8_elements_times_a_power_of_two() -> None:
    qdata = torch.tensor([[1.5, -448.0, 0.0, 2.0**-9]]).to(torch.float8_e4m3fn)
    scale = torch.tensor([[130, 255]], dtype=torch.uint8)
    found = dequantize_mx(
        qdata, scale, element="float8_e4m3fn", block_size=(1, 2), dtype=torch.float32
    )
    assert found[0, :2].tolist() == [12.0, -3584.0]
    assert found[0, 2:].isnan().all()


def test_the_least_scale_is_subnormal_and_not_zero() -> None:
    qdata = pack_nibbles(torch.tensor([[2, 7]], dtype=torch.uint8))  # 1 and 6
    scale = torch.zeros(1, 1, dtype=torch.uint8)
    for dtype in (torch.float32, torch.bfloat16):
        found = dequantize_mx(qdata, scale, element=FP4, block_size=(1, 2), dtype=dtype)
        assert found.tolist() == [[2.0**-127, 6 * 2.0**-127]]


def test_codes_of_another_dtype_are_refused() -> None:
    scale = torch.zeros(1, 1, dtype=torch.uint8)
    for qdata, element in (
        (torch.zeros(1, 2, dtype=torch.uint8), "float8_e5m2"),
        (torch.zeros(1, 2).to(torch.float8_e4m3fn), "float8_e5m2"),
        (torch.zeros(1, 2).to(torch.float8_e4m3fn), FP4),
    ):
        with pytest.raises(FieldError, match=f"does not hold elements of {element}"):
            dequantize_mx(qdata, scale, element=element, block_size=(1, 2), dtype=torch.float32)


@pytest.mark.parametrize("element", ELEMENTS)
@pytest.mark.parametrize("mode", SCALE_MODES)
def test_mx_is_off_by_half_a_step_of_its_elements(element: str, mode: str) -> None:
    """Where the scale leaves room for the largest value; else by what saturation takes off."""
    w = torch.randn(16, 70) * torch.rand(16, 1) * 100
    qdata, scale = quantize_mx(w, element=element, block_size=(1, 32), scale_mode=mode)
    assert scale.shape == (16, 3)  # the last block is ragged
    found = dequantize_mx(qdata, scale, element=element, block_size=(1, 32), dtype=torch.float32)
    unit = expand(e8m0(scale), (1, 32), w.shape)
    saturated = (w.abs() - element_of(element).largest * unit).clamp(min=0)
    allowed = torch.maximum(half_step(w, unit, element_of(element)), saturated)
    assert ((found - w).abs() <= allowed * (1 + 1e-6)).all()
    if mode in ("ceil", "rceil"):
        assert (saturated == 0).all()


def test_mx_of_tiny_values_keeps_them() -> None:
    """torchao divides by 2**-126 here and gets half of it, and zeros with `rceil`."""
    w = torch.tensor([[2.0**-126, 2.0**-128]])
    for mode in SCALE_MODES:
        qdata, scale = quantize_mx(w, element=FP4, block_size=(1, 2), scale_mode=mode)
        assert scale.item() == 0
        found = dequantize_mx(qdata, scale, element=FP4, block_size=(1, 2), dtype=torch.float32)
        assert torch.equal(found, w)


def test_what_cannot_be_quantized_is_refused() -> None:
    w = torch.ones(2, 4)
    w[1, 1] = math.nan
    with pytest.raises(QuantizationError, match="infinity or NaN"):
        quantize_mx(w, element=FP4, block_size=(1, 4), scale_mode="floor")
    with pytest.raises(QuantizationError, match="must be even, not 3"):
        quantize_mx(torch.ones(2, 3), element=FP4, block_size=(1, 3), scale_mode="floor")


@pytest.mark.parametrize("element", ELEMENTS)
def test_an_activation_goes_through_the_same_codes(element: str) -> None:
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    kwargs = {"element": element, "block_size": (1, 32)}
    qdata, scale = quantize_mx(x, scale_mode="even", **kwargs)
    expected = dequantize_mx(qdata, scale, dtype=torch.float32, **kwargs)
    assert same_bytes(through_mx(x, scale_mode="even", **kwargs), expected)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_block_of_an_activation_that_is_not_finite_becomes_nan(bad: float) -> None:
    x = torch.tensor([[3.0, bad, 3.0, 6.0]])
    found = through_mx(x, element=FP4, block_size=(1, 2), scale_mode="floor")
    assert found[0, :2].isnan().all()
    assert found[0, 2:].tolist() == [3.0, 6.0]
