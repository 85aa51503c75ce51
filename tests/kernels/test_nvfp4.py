"""NVFP4: two levels of scales, and in which dtype they are multiplied."""

from __future__ import annotations

import math

import pytest
import torch
from support.elements import half_step
from support.tensors import same_bytes

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels import (
    check_tensor_scale,
    dequantize_nvfp4,
    matrix_scale,
    quantize_nvfp4,
)
from aoserial.kernels.arithmetic import FP4, expand, through_nvfp4

PLAIN = {"scale_op": "multiply", "scale_dtype": torch.float32, "dtype": torch.float32}


def nvfp4(
    per_tensor: torch.Tensor | None = None, *, op: str = "multiply", product: str = "float32"
) -> list[float]:
    """Codes 2 (1.0) and 15 (-6.0) with the scale 0.8125, in float32."""
    found = dequantize_nvfp4(
        torch.tensor([[0xF2]], dtype=torch.uint8),
        torch.tensor([[0.8125]]).to(torch.float8_e4m3fn),
        per_tensor,
        scale_op=op,
        scale_dtype=getattr(torch, product),
        block_size=(1, 2),
        dtype=torch.float32,
    )
    return found[0].tolist()


def test_one_scale_or_two() -> None:
    assert nvfp4() == [0.8125, -4.875]
    assert nvfp4(torch.tensor(0.5)) == [0.40625, -2.4375]
    assert nvfp4(torch.tensor(4.0), op="divide") == [0.203125, -1.21875]


def test_dividing_is_not_multiplying_by_the_reciprocal() -> None:
    by = torch.tensor(5.0)
    quotient = torch.tensor(0.8125) / by
    assert nvfp4(by, op="divide")[0] == quotient.item() != nvfp4(1 / by)[0]


def test_the_scales_are_multiplied_in_the_dtype_named() -> None:
    by = torch.tensor(1.01)
    narrow = by.bfloat16() * torch.tensor(0.8125).bfloat16()
    assert nvfp4(by, product="bfloat16")[0] == narrow.item() != nvfp4(by)[0]
    assert nvfp4(by)[0] == (by * 0.8125).item()


def test_each_of_a_stack_may_have_its_scale() -> None:
    stack = torch.randn(3, 4, 32)
    for scale in (torch.tensor(0.01), torch.rand(3, 1, 1) / 100):
        qdata, blocks = quantize_nvfp4(stack, scale, block_size=(1, 1, 16))
        found = dequantize_nvfp4(qdata, blocks, scale, block_size=(1, 1, 16), **PLAIN)
        for index, one in enumerate(stack):
            own = scale.expand(3, 1, 1)[index].reshape(())
            parts = quantize_nvfp4(one, own, block_size=(1, 16))
            alone = dequantize_nvfp4(*parts, own, block_size=(1, 16), **PLAIN)
            assert same_bytes(found[index], alone)


def test_a_tensor_scale_of_another_shape_is_refused() -> None:
    with pytest.raises(FieldError, match=r"shape \[2, 1\], expected \[\] or \[1, 1\]"):
        nvfp4(torch.ones(2, 1))
    w = torch.ones(3, 4, 16)
    for scale in (torch.ones(3), torch.ones(1, 1, 1), torch.ones(3, 4, 1)):
        with pytest.raises(QuantizationError, match=r"expected \[\] or \[3, 1, 1\]"):
            check_tensor_scale(scale, w)
    for bad in (0.0, -1.0, math.nan, math.inf, 1e-40):
        with pytest.raises(QuantizationError, match="finite and at least"):
            check_tensor_scale(torch.tensor(bad), w)


def test_the_scale_that_uses_the_whole_range() -> None:
    w = torch.randn(2, 4, 32)
    w[0, 0, 0], w[1, 0, 0] = 26.88, -2688.0
    assert matrix_scale(w[0]).item() == (torch.tensor(26.88) / 2688).item()
    assert matrix_scale(w).flatten().tolist() == [matrix_scale(w[0]).item(), 1.0]
    assert matrix_scale(w).shape == (2, 1, 1)
    _, scale = quantize_nvfp4(w, matrix_scale(w), block_size=(1, 1, 16))
    assert scale.float().amax((1, 2)).tolist() == [448.0, 448.0]


@pytest.mark.parametrize("value", [0.0, 1e-45, 1e-38, 3e38])
def test_the_smallest_and_largest_weights_stay_finite(value: float) -> None:
    w = torch.tensor([[value, -value / 2, 0.0, 0.0]])
    scale = matrix_scale(w)
    qdata, blocks = quantize_nvfp4(w, scale, block_size=(1, 4))
    found = dequantize_nvfp4(
        qdata,
        blocks,
        scale,
        scale_op="multiply",
        scale_dtype=torch.float32,
        block_size=(1, 4),
        dtype=torch.float32,
    )
    torch.testing.assert_close(found, w, rtol=0.1, atol=2.0**-120)


def test_an_empty_weight_has_a_scale() -> None:
    for shape in ((0, 4), (4, 0), (2, 0, 4), (2, 4, 0)):
        w = torch.zeros(shape)
        qdata, _ = quantize_nvfp4(w, matrix_scale(w), block_size=(*[1] * (w.dim() - 1), 2))
        assert qdata.shape == (*shape[:-1], shape[-1] // 2)


@pytest.mark.parametrize("levels", [1, 2])
def test_nvfp4_is_off_by_half_a_step_of_its_elements(levels: int) -> None:
    """Or by what saturation takes off, where a scale was rounded down."""
    w = torch.randn(16, 70) * (torch.rand(16, 1) + 0.1)
    whole = matrix_scale(w) if levels == 2 else None
    qdata, scale = quantize_nvfp4(w, whole, block_size=(1, 16))
    assert scale.shape == (16, 5)  # the last block is ragged
    found = dequantize_nvfp4(qdata, scale, whole, block_size=(1, 16), **PLAIN)
    unit = expand(scale.float() * (1 if whole is None else whole), (1, 16), w.shape)
    saturated = (w.abs() - FP4.largest * unit).clamp(min=0)
    assert (saturated <= FP4.largest * unit / 16).all()
    allowed = torch.maximum(half_step(w, unit, FP4), saturated)
    assert ((found - w).abs() <= allowed * (1 + 1e-5)).all()


def test_what_cannot_be_quantized_is_refused() -> None:
    w = torch.ones(2, 4)
    w[1, 1] = math.nan
    for whole in (None, torch.tensor(0.5)):
        with pytest.raises(QuantizationError, match="infinity or NaN"):
            quantize_nvfp4(w, whole, block_size=(1, 4))
    with pytest.raises(QuantizationError, match="must be even, not 3"):
        quantize_nvfp4(torch.ones(2, 3), block_size=(1, 3))


@pytest.mark.parametrize("whole", [None, torch.tensor(0.02)], ids=["one level", "two levels"])
def test_an_nvfp4_activation_goes_through_the_same_codes(whole: torch.Tensor | None) -> None:
    x = torch.randn(3, 64, dtype=torch.bfloat16)
    qdata, scale = quantize_nvfp4(x, whole, block_size=(1, 16))
    expected = dequantize_nvfp4(qdata, scale, whole, block_size=(1, 16), **PLAIN)
    assert same_bytes(through_nvfp4(x, whole, block_size=(1, 16)), expected)


@pytest.mark.parametrize("bad", [math.inf, -math.inf, math.nan])
def test_a_block_of_an_activation_that_is_not_finite_becomes_nan(bad: float) -> None:
    x = torch.tensor([[3.0, bad, 3.0, 6.0]])
    found = through_nvfp4(x, block_size=(1, 2))
    assert found[0, :2].isnan().all()
    assert found[0, 2:].tolist() == [3.0, 6.0]
