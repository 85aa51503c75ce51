"""Codes of an activation by the compiled code: bit for bit those of `activation.quantize`."""

from __future__ import annotations

import pytest
import torch
from support.kernel_weights import int8_activation

from aoserial.kernels import ActivationSpec
from aoserial.kernels.activation import quantize
from aoserial.kernels.cpu.int8rows import Quantizer
from aoserial.kernels.cpu.native import library, threads

pytestmark = pytest.mark.skipif(
    library.LIBRARY is None, reason="products.c is NOT compiled: it is NOT checked"
)
MAPPINGS = ("symmetric", "symmetric_no_clipping_err", "asymmetric")
LIMITS = ({}, {"reduce_range": True}, {"narrow_range": True}, {"least_scale": 0.013})
DTYPES = (torch.bfloat16, torch.float32)


def rows(dtype: torch.dtype) -> torch.Tensor:
    """Of all magnitudes, of one sign, of zeros of both signs, of ties, of the smallest numbers."""
    x = torch.randn(24, 77) * 10.0 ** torch.arange(-12, 12)[:, None]
    x[0], x[1], x[2] = 0.0, -0.0, 5e-39
    x[3], x[4] = x[3].abs(), -x[4].abs()
    x[5] = torch.arange(77) - 38.5
    x[5, 0] = 127.5  # a scale of one, and all others between two codes
    x[6] = torch.where(torch.arange(77) % 2 == 0, 3e38, -3e38)
    return x.to(dtype)


def equal(x: torch.Tensor, spec: ActivationSpec) -> None:
    """Asserts that codes, scales and zero points are the same; scales that are no numbers NaN."""
    found, expected = Quantizer(spec, {})(x), quantize(x, spec)
    scale = expected.scale.reshape(-1)
    infinite = ~scale.isfinite()
    assert torch.equal(found.scale.isnan(), infinite)
    assert torch.equal(found.scale[~infinite], scale[~infinite])
    assert torch.equal(found.codes[~infinite], expected.codes[~infinite])
    if expected.zero_point is None:
        assert found.zero_point is None
    else:
        assert torch.equal(found.zero_point[~infinite], expected.zero_point.reshape(-1)[~infinite])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("limits", LIMITS, ids=lambda limits: next(iter(limits), "whole"))
def test_rows_get_the_same_codes_scales_and_zero_points(
    dtype: torch.dtype, mapping: str, limits: dict[str, object]
) -> None:
    equal(rows(dtype), int8_activation("row", mapping=mapping, **limits))


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_any_numbers_of_bfloat16(mapping: str) -> None:
    bits = torch.randint(-(1 << 15), 1 << 15, (400, 33), dtype=torch.int16)
    equal(bits.view(torch.bfloat16), int8_activation("row", mapping=mapping))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_rows_with_an_infinity_or_nan_have_a_scale_of_nan(dtype: torch.dtype, mapping: str) -> None:
    x = rows(dtype)
    x[1, 3], x[2, 76], x[3, 0], x[4, 5] = torch.inf, -torch.inf, torch.nan, -torch.nan
    spec = int8_activation("row", mapping=mapping)
    equal(x, spec)
    assert Quantizer(spec, {})(x).scale.isnan()[1:5].all()


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16])
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_one_scale_for_all(dtype: torch.dtype, mapping: str) -> None:
    x, spec = rows(dtype)[7:14].contiguous(), int8_activation("tensor", mapping=mapping)
    found, expected = Quantizer(spec, {})(x), quantize(x, spec)
    assert torch.equal(found.codes, expected.codes)
    assert torch.equal(found.scale, expected.scale.reshape(-1).expand(7))


@pytest.mark.parametrize(
    "scale", [torch.tensor(0.02), torch.tensor([[0.02]], dtype=torch.bfloat16)]
)
def test_a_stored_scale_and_zero_point(scale: torch.Tensor) -> None:
    spec = int8_activation("tensor", static=True, mapping="asymmetric")
    x, zero = torch.randn(3, 40, dtype=torch.bfloat16), torch.tensor(-17)
    x[1, 1] = torch.nan
    found = Quantizer(spec, {"act_scale": scale, "act_zero_point": zero})(x)
    expected = quantize(x, spec, scale, zero.to(torch.int8))
    there = x.isfinite()
    assert torch.equal(found.codes[there], expected.codes[there])
    assert torch.equal(found.scale, scale.float().reshape(-1).expand(3))
    assert found.zero_point.tolist() == [-17] * 3


def test_threads_share_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_SMALL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    equal(torch.randn(50, 64, dtype=torch.bfloat16), int8_activation("row"))
