"""Quantized activations: the writer's formulas by hand, and what is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from aoserial.kernels import ActivationSpec
from aoserial.kernels.activation import (
    blocks,
    fake_quantize,
    fake_quantize_narrow,
)
from aoserial.kernels.arithmetic import through_mx, through_nvfp4
from aoserial.kernels.settings import leaves_alone, refusal

INT8 = ActivationSpec(static=False, dtype="int8", granularity="row", dim=-1)
FLOAT8 = ActivationSpec(static=False, dtype="float8_e4m3fn", granularity="row", dim=-1)
MX = ActivationSpec(
    static=False, dtype="float6_e2m3fn", granularity="group", group_size=4, scale_mode="even"
)
NVFP4 = ActivationSpec(static=False, dtype="float4_e2m1fn_x2", granularity="group", group_size=4)


def test_dynamic_symmetric_int8_scales_by_half_the_range() -> None:
    x = torch.tensor([[1.0, -2.0, 0.5], [4.0, 0.0, 0.0]])
    found = fake_quantize(x, INT8)
    for row, values in zip(found, x, strict=True):
        scale = values.abs().max() / 127.5
        codes = torch.round(values * (1 / scale)).clamp(-128, 127)
        assert torch.equal(row, codes * scale)


def test_reduced_range_uses_half_the_codes() -> None:
    x = torch.tensor([[1.0, -2.0, 0.5]])
    scale = torch.tensor(2.0) / 63.5
    codes = torch.round(x * (1 / scale)).clamp(-64, 63)
    assert torch.equal(fake_quantize(x, replace(INT8, reduce_range=True)), codes * scale)


def test_narrow_range_leaves_the_lowest_code_out() -> None:
    x = torch.tensor([[1.0, -2.0, 0.5]])
    scale = torch.tensor(2.0) / 127
    codes = torch.round(x * (1 / scale)).clamp(-127, 127)
    assert torch.equal(fake_quantize(x, replace(INT8, narrow_range=True)), codes * scale)


def test_small_scales_are_raised_to_the_least() -> None:
    x = torch.tensor([[1e-4, -2e-4]])
    codes = torch.round(x * (1 / torch.tensor(1e-5)))
    spec = replace(INT8, narrow_range=True, least_scale=1e-5)
    for found in (fake_quantize(x, spec), fake_quantize_narrow(x, spec)):
        assert torch.equal(found, codes * torch.tensor(1e-5))


def test_an_activation_of_one_position_is_left_alone_where_decoding_skips() -> None:
    spec = replace(INT8, skip_decode=True)
    assert leaves_alone(spec, torch.ones(2, 1, 8))
    assert not leaves_alone(spec, torch.ones(2, 3, 8))
    assert not leaves_alone(spec, torch.ones(8))
    assert not leaves_alone(INT8, torch.ones(2, 1, 8))


def test_asymmetric_int8_has_its_minimum_at_the_lowest_code() -> None:
    x = torch.tensor([[-1.0, 0.0, 3.0]])
    scale = torch.tensor(4.0) / 255
    zero_point = torch.round(-128 - torch.round(torch.tensor(-1.0) / scale))
    codes = (torch.round(x * (1 / scale)) + zero_point).clamp(-128, 127)
    found = fake_quantize(x, replace(INT8, mapping="asymmetric"))
    assert torch.equal(found, (codes - zero_point) * scale)


def test_no_clipping_takes_the_larger_of_both_ends() -> None:
    x = torch.tensor([[-1.28, 1.27]])
    found = fake_quantize(x, replace(INT8, mapping="symmetric_no_clipping_err"))
    torch.testing.assert_close(found, x, rtol=1e-6, atol=0)


def test_float8_bounds_limit_what_the_scale_sees() -> None:
    x = torch.tensor([[0.1, 100.0]])
    found = fake_quantize(x, replace(FLOAT8, upper_bound=10.0))
    scale = torch.tensor(10.0) / 448
    codes = (x / scale).clamp(-448, 448).to(torch.float8_e4m3fn).float()
    assert torch.equal(found, codes * scale)
    assert found[0, 1] == 10.0


def test_an_intx_weight_has_its_activation_quantized_in_the_dtype_of_that() -> None:
    """Scale and codes are rounded to bfloat16, as torchao does it."""
    x = torch.randn(3, 16, dtype=torch.bfloat16)
    found = fake_quantize_narrow(x, replace(INT8, mapping="asymmetric"))
    for row, values in zip(found, x, strict=True):
        least, most = values.amin(), values.amax()
        scale = (most - least) / 255
        zero_point = (-128 - torch.round(least / scale)).clamp(-128, 127)
        codes = (torch.round(values * (1 / scale)) + zero_point).clamp(-128, 127)
        assert scale.dtype == torch.bfloat16
        assert torch.equal(row, (codes - zero_point) * scale)


def test_a_power_of_two_scale_makes_an_activation_mx() -> None:
    x = torch.randn(2, 8)
    expected = through_mx(x, element="float6_e2m3fn", block_size=(1, 4), scale_mode="even")
    assert torch.equal(fake_quantize(x, MX), expected)


def test_the_whole_of_an_nvfp4_activation_may_have_a_scale() -> None:
    x = torch.randn(2, 8)
    computed = x.abs().max() / 2688
    for spec, stored, used in (
        (NVFP4, None, None),
        (replace(NVFP4, tensor_scale=True), None, computed),
        (NVFP4, torch.tensor([0.25]), torch.tensor(0.25)),
        (replace(NVFP4, tensor_scale=True), torch.tensor(0.25), torch.tensor(0.25)),
    ):
        expected = through_nvfp4(x, used, block_size=(1, 4))
        assert torch.equal(fake_quantize(x, spec, stored), expected)


@pytest.mark.parametrize(
    "spec", [INT8, FLOAT8, MX, NVFP4, replace(NVFP4, tensor_scale=True)], ids=str
)
def test_an_activation_of_zeros_stays_zeros(spec: ActivationSpec) -> None:
    assert torch.equal(fake_quantize(torch.zeros(2, 4), spec), torch.zeros(2, 4))


def test_a_static_scale_is_used_as_it_is() -> None:
    x = torch.tensor([[[1.0, 60.0, -7.3]]])
    static = replace(INT8, static=True, granularity="tensor")
    found = fake_quantize(x, static, torch.tensor([[0.25]]))
    assert found.tolist() == [[[1.0, 31.75, -7.25]]]
    shifted = fake_quantize(x, static, torch.tensor([[0.25]]), torch.tensor([[-100]]))
    assert shifted.tolist() == [[[1.0, 56.75, -7.0]]]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (replace(INT8, granularity="tensor"), (2, 3, 8)),
        (INT8, (1, 1, 8)),
        (replace(INT8, granularity="row", dim=0), (2, 1, 1)),
        (replace(INT8, granularity="token", dim=None), (1, 1, 8)),
        (replace(INT8, granularity="axis", dim=1), (2, 1, 8)),
        (replace(INT8, granularity="group", group_size=4), (1, 1, 4)),
        (replace(INT8, granularity="block", block_size=(1, 4)), (1, 1, 4)),
    ],
    ids=lambda value: value.granularity if isinstance(value, ActivationSpec) else "",
)
def test_a_granularity_is_a_block_size(spec: ActivationSpec, expected: tuple[int, ...]) -> None:
    assert blocks(spec, torch.zeros(2, 3, 8)) == expected


@pytest.mark.parametrize(
    ("spec", "parts", "sentence"),
    [
        (INT8, ("act_scale",), "dynamic, but the weight has an act_scale"),
        (replace(INT8, static=True), (), "static, but the weight has no act_scale"),
        (replace(INT8, dtype="int4"), (), "int4 is not implemented"),
        (replace(INT8, granularity="group"), (), "groups, but their size is missing"),
        (replace(INT8, granularity="block"), (), "blocks, but their size is missing"),
        (replace(INT8, granularity="axis", dim=None), (), "axis, but it is not said which"),
        (replace(INT8, upper_bound=1.0), (), "bounds"),
        (replace(FLOAT8, mapping="asymmetric"), (), "symmetric"),
        (replace(FLOAT8, reduce_range=True), (), "whole range"),
        (replace(FLOAT8, narrow_range=True), (), "whole range"),
        (replace(INT8, narrow_range=True, reduce_range=True), (), "half"),
        (replace(MX, dtype="int8"), (), "int8 is not implemented"),
        (replace(MX, scale_mode=None), (), "float6_e2m3fn is not implemented"),
        (replace(MX, static=True), (), "no static scale"),
        (MX, ("act_scale",), "no static scale"),
        (replace(MX, mapping="asymmetric"), (), "whole range"),
        (replace(MX, tensor_scale=True), (), "belongs to NVFP4"),
        (INT8, ("act_per_tensor_scale",), "belongs to NVFP4"),
        (NVFP4, ("act_scale",), "but an act_per_tensor_scale"),
        (replace(NVFP4, static=True), (), "but an act_per_tensor_scale"),
        (replace(NVFP4, upper_bound=1.0), (), "bounds"),
        (replace(NVFP4, group_size=None), (), "groups, but their size is missing"),
    ],
)
def test_what_cannot_be_honoured_is_refused_in_a_sentence(
    spec: ActivationSpec, parts: tuple[str, ...], sentence: str
) -> None:
    found = refusal(spec, parts)
    assert found is not None
    assert sentence in found


@pytest.mark.parametrize("spec", [INT8, FLOAT8, replace(INT8, mapping="asymmetric"), MX, NVFP4])
def test_what_can_be_honoured_is_not_refused(spec: ActivationSpec) -> None:
    assert refusal(spec, ("qdata", "scale")) is None


def test_an_nvfp4_activation_may_have_a_scale_of_its_own() -> None:
    parts = ("qdata", "scale", "act_per_tensor_scale")
    assert refusal(NVFP4, parts) is None
    assert refusal(replace(NVFP4, static=True), parts) is None
