"""Every code of every format, and values that are no numbers, on a CPU."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from support.kernel_weights import int8_activation, weight_of, with_activation, with_part
from support.products import MAKERS, check
from support.weights import make_act_order_int4

from aoserial.kernels import DeviceInfo, Packed, Weight, linear
from aoserial.kernels.arithmetic import ELEMENTS
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.cpu.bits import FORMATS

pytestmark = pytest.mark.usefixtures("either")

CPU = DeviceInfo.of(torch.device("cpu"))
FLOAT8 = ("float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz")


def product(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    return Cpu().linear(x, packed(weight))


def packed(weight: Weight) -> Packed:
    return Cpu().pack(weight, CPU)


def made(name: str) -> Weight:
    torch.manual_seed(0)
    return MAKERS[name](torch.randn(48, 64, dtype=torch.bfloat16))


def float8_codes(dtype: str, codes: torch.Tensor) -> Weight:
    weight = made("float8 row")
    spec = replace(weight.spec, data_dtype=dtype, shape=tuple(codes.shape), block_size=(1, 1 << 9))
    qdata = codes.to(torch.uint8).view(getattr(torch, dtype))
    return Weight(spec=spec, parts={"qdata": qdata, "scale": torch.full((len(codes), 1), 0.75)})


@pytest.mark.parametrize("dtype", FLOAT8)
def test_every_code_of_float8_is_decoded_exactly(dtype: str) -> None:
    every = torch.arange(256)
    values = every.to(torch.uint8).view(getattr(torch, dtype)).to(torch.float32)
    finite = values.isfinite()
    weight = float8_codes(dtype, every[finite].repeat(3, 1))
    identity = torch.eye(int(finite.sum()))
    assert torch.equal(product(identity, weight)[:, 1], values[finite] * 0.75)


@pytest.mark.parametrize("dtype", FLOAT8)
def test_codes_that_are_no_numbers_give_what_they_give_the_reference(dtype: str) -> None:
    every = torch.arange(256)
    weight = float8_codes(dtype, torch.cat([every.repeat(3, 1), every.flip(0)[None]]))
    x = torch.ones(2, 256)
    expected = linear(x, weight, backend="reference")
    assert expected.isnan().any()
    torch.testing.assert_close(product(x, weight), expected, equal_nan=True)


@pytest.mark.parametrize("element", ["float4_e2m1fn_x2", "float6_e2m3fn", "float6_e3m2fn"])
@pytest.mark.parametrize("scale", [1, 127, 249])
def test_every_code_of_small_elements_is_decoded_exactly(element: str, scale: int) -> None:
    """With nearly the least scale, 1, and one whose product with a decoder's factor overflows."""
    form = ELEMENTS[element]
    values = torch.tensor([*form.magnitudes, *(-value for value in form.magnitudes)])
    codes = torch.arange(len(values), dtype=torch.uint8).repeat(64 // len(values) or 1)[None]
    codes = codes.roll(1, 1)  # so that neighbours in a byte differ
    values = values[codes[0].long()]
    qdata = codes[:, ::2] | codes[:, 1::2] << 4 if form.codes_per_byte == 2 else codes
    name = f"mx {torch.float4_e2m1fn_x2 if form.codes_per_byte == 2 else element}"
    spec = replace(made(name).spec, shape=(1, codes.shape[1]), block_size=(1, 32))
    scales = torch.full((1, codes.shape[1] // 32), scale, dtype=torch.uint8)
    weight = Weight(spec=spec, parts={"qdata": qdata, "scale": scales})
    found = product(torch.eye(codes.shape[1]), weight)
    assert torch.equal(found[:, 0], values * 2.0 ** (scale - 127))


def test_bytes_that_are_no_code_of_six_bits_stay_nan() -> None:
    weight = made("mx float6_e2m3fn")
    qdata = weight.parts["qdata"].clone()
    qdata[3, 5] = 64
    broken = Weight(spec=weight.spec, parts={**weight.parts, "qdata": qdata})
    found = product(torch.ones(1, 64), broken)
    assert found[0].isnan().tolist() == [row == 3 for row in range(48)]


@pytest.mark.parametrize("name", MAKERS)
def test_infinities_and_nan_of_activations_go_where_the_reference_lets_them(name: str) -> None:
    weight = made(name)
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(4, 64, dtype=dtype)
        x[1, 7], x[2, 9], x[3, 11], x[3, 12] = torch.inf, torch.nan, torch.inf, -torch.inf
        found, expected = product(x, weight), linear(x, weight, backend="reference")
        assert torch.equal(found.isnan(), expected.isnan())
        assert torch.equal(found.isinf(), expected.isinf())


@pytest.mark.parametrize("mapping", ["symmetric", "asymmetric"])
def test_infinities_of_quantized_activations_too(mapping: str) -> None:
    weight = with_activation(weight_of("int8 row"), int8_activation("row", mapping=mapping))
    x = torch.randn(4, 256, dtype=torch.bfloat16)
    x[1, 7], x[2, 9], x[3, 11] = torch.inf, torch.nan, -torch.inf
    found, expected = product(x, weight), linear(x, weight, backend="reference")
    assert torch.equal(found.isfinite(), expected.isfinite())
    assert not expected[1:].isfinite().any()


@pytest.mark.parametrize("domain", ["none", "int", "float", "offset"])
def test_groups_of_columns_that_are_no_neighbours(domain: str) -> None:
    weight = made(f"int4 {domain} 32")
    order = torch.randperm(64) // 32
    uneven = torch.tensor([0] * 40 + [1] * 24)
    for index in (order, uneven):
        ordered = with_part(weight, "group_index", index)
        for rows in (1, 50):
            x = torch.randn(rows, 64, dtype=torch.bfloat16)
            check(product(x, ordered), x, ordered, None)


def test_act_order_of_small_groups() -> None:
    weight = make_act_order_int4().kernel_weight()
    x = torch.randn(3, weight.spec.shape[1])
    check(product(x, weight), x, weight, None)


@pytest.mark.parametrize("operation", ["multiply", "divide"])
@pytest.mark.parametrize("name", ["int4 int 32", "int8 row", "intx 4 float"])
def test_the_activation_is_scaled_first(name: str, operation: str) -> None:
    weight = with_part(made(name), "act_pre_scale", torch.rand(64) + 0.5)
    weight = Weight(
        spec=replace(weight.spec, act_pre_scale_op=operation),
        parts=weight.parts,
    )
    for dtype in (torch.bfloat16, torch.float32):
        x = torch.randn(3, 64, dtype=dtype)
        check(product(x, weight), x, weight, None)


def test_scales_that_bfloat16_would_round_are_not_rounded() -> None:
    for name in ("int4 none 32", "int8 row"):
        weight = made(name)
        scale = torch.full(weight.parts["scale"].shape, 1 + 2.0**-9)
        fine = Weight(spec=weight.spec, parts={**weight.parts, "scale": scale})
        plain = Weight(spec=weight.spec, parts={**weight.parts, "scale": torch.ones_like(scale)})
        x = torch.full((1, 64), 2.0**-3, dtype=torch.bfloat16)
        kernel_makes = packed(fine).parts
        assert "scales_and_zeros" not in kernel_makes
        wide = product(x.float(), fine) / product(x.float(), plain)
        assert torch.allclose(wide, torch.tensor(1 + 2.0**-9), rtol=1e-6, equal_nan=True)


@pytest.mark.parametrize("name", FORMATS)
def test_codes_are_decoded_to_bfloat16_as_to_float32_and_none_is_subnormal(name: str) -> None:
    form = FORMATS[name]
    codes = torch.arange(256).to(torch.uint8).view(torch.int8) & -(1 << form.unused)
    wide, narrow = torch.empty(256), torch.empty(256, dtype=torch.bfloat16)
    form.decode(codes, wide)
    form.decode(codes, narrow)
    numbers = wide.isfinite()  # of e5m2, float16 has the same others, and packing refuses them
    assert int((~numbers).sum()) == (8 if name == "float8_e5m2" else 0)
    assert torch.equal(narrow.to(torch.float32)[numbers], wide[numbers])
    assert narrow[narrow != 0].abs().min() >= torch.finfo(torch.bfloat16).tiny
