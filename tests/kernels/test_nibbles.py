"""A row of activations times nibbles in integers: exact products, whatever the activation is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from support.kernel_weights import with_part
from support.products import (
    FP4,
    MAKERS as OTHERS,
    check,
    int4_maker,
    native_products,
    one_hot_products,
)

from aoserial.kernels import DeviceInfo, Weight, dequantize
from aoserial.kernels.arithmetic import decode, element_of, pack_nibbles, unpack_nibbles
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.cpu.native import library

pytestmark = [
    pytest.mark.usefixtures("without_tiles"),
    pytest.mark.skipif(
        library.LIBRARY is None, reason="products.c is NOT compiled: it is NOT checked"
    ),
]
CPU = DeviceInfo.of(torch.device("cpu"))
# rows of groups of 128 are cut into blocks of two vectors
PAIRED = {f"int4 {domain} 128": int4_maker(domain, 128) for domain in ("none", "int", "float")}
MAKERS = {**OTHERS, **PAIRED}
NIBBLES = ["int4 none 32", "int4 int 64", "int4 float 32", "int4 offset 64", f"mx {FP4}", "nvfp4"]
NIBBLES += PAIRED


def spiked(columns: int, spikes: int) -> torch.Tensor:
    """Some are so large that the others of their lanes, 15 each, are no multiples of the unit."""
    x = torch.randn(1, columns)
    x[0, 5 : 5 + spikes * 128 : 128] = 2.0**40
    return x


ROWS: dict[str, Callable[[int], torch.Tensor]] = {
    "normal": lambda columns: torch.randn(1, columns),
    "with some that are tiny": lambda columns: (
        torch.randn(1, columns) * torch.where(torch.rand(columns) < 0.01, 2.0**-30, 1.0)
    ),
    "spiked": lambda columns: spiked(columns, 1),  # of 512 columns one word has room for 17 strays
    "spiked twice": lambda columns: spiked(columns, 2),  # and two for 33
    "spiked often": lambda columns: spiked(columns, 4),
    "that two words hold": lambda columns: torch.randint(-(2**23), 2**23, (1, columns)) * 1.0,
    "of all exponents": lambda columns: (
        torch.randn(1, columns) * 2.0 ** torch.randint(-80, 80, (columns,))
    ),
    "zero": lambda columns: torch.zeros(1, columns),
    "one number": lambda columns: torch.eye(columns)[columns - 1 :] * 3.0,
    "tiny": lambda columns: torch.randn(1, columns) * 2.0**-110,
    "large": lambda columns: torch.randn(1, columns) * 2.0**100,
    "powers of two": lambda columns: 2.0 ** torch.randint(-9, 9, (1, columns)),
    "of both signs and one size": lambda columns: torch.randint(0, 2, (1, columns)) * 2.0 - 1.0,
}


def without(weight: Weight, column: int) -> Weight:
    """The weight with zeros there, where an activation may be as large as it likes.

    Its zero points, where it has some, are any elsewhere; there, too, where they are integers.
    """
    domain, zero_point = weight.spec.zero_domain, weight.parts.get("zero_point")
    codes = unpack_nibbles(weight.parts["qdata"].view(torch.uint8))
    codes[:, column] = 8 if domain in ("none", "float") else 0
    if zero_point is not None:
        group = column // weight.spec.block_size[1]
        zero_point = torch.randint(-4, 16, zero_point.shape).to(zero_point.dtype)
        if domain == "int":
            codes[:, column] = torch.randint(0, 16, codes[:, column].shape).to(codes.dtype)
            zero_point[:, group] = codes[:, column].to(zero_point.dtype)
        else:
            zero_point[:, group] = 0
        weight = with_part(weight, "zero_point", zero_point)
    return with_part(weight, "qdata", pack_nibbles(codes).view(weight.parts["qdata"].dtype))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("name", NIBBLES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_a_row_of_any_numbers_is_within_the_bound(name: str, row: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    weight = MAKERS[name](torch.randn(40, 512, dtype=torch.bfloat16))
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native nibbles")
    most = 256.0 if dtype == torch.float16 else 2.0**100  # that the sums do not overflow
    x = ROWS[row](512).clamp(-most, most).to(dtype)
    check(Cpu().linear(x, packed), x, weight, None)


def beside_a_far_larger_one(weight: Weight, spike: int, x: torch.Tensor) -> None:
    """Asserts the bound for a row whose largest number meets zeros, so that the others are all."""
    assert not dequantize(weight)[:, spike].any()
    assert x[0, spike] == x.abs().max()
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native nibbles")
    found = Cpu().linear(x, packed)
    x[0, spike] = 0.0  # its share is nothing, and so is what that may be off by
    check(found, x, weight, None)


@pytest.mark.parametrize("name", [name.replace("64", "32") for name in NIBBLES])
@pytest.mark.parametrize("how", ["strays of words", "strays of pairs of words", "too many strays"])
def test_numbers_beside_one_that_is_far_larger_are_not_lost(name: str, how: str) -> None:
    torch.manual_seed(0)
    columns, spike = 128 if name in PAIRED else 64, 45
    lane = [104, 41, 111, 46, 107, 43, 105, 40, 110, 44, 108, 42, 106, 47, 109]
    lane = [column for column in lane if column < columns]
    room = {"strays of words": columns // 32 + 1, "strays of pairs of words": columns // 16 + 1}
    weight = without(MAKERS[name](torch.randn(16, columns, dtype=torch.bfloat16)), spike)
    x = torch.zeros(1, columns, dtype=torch.bfloat16)
    x[0, :32] = torch.randn(32)  # of lanes of their own
    beside = lane[: room.get(how, len(lane))]
    assert len(beside) == room.get(how, len(lane))
    x[0, beside] = torch.randn(len(beside)).to(torch.bfloat16)
    x[0, spike] = 2.0**60
    beside_a_far_larger_one(weight, spike, x)


@pytest.mark.parametrize("name", [name.replace("64", "32") for name in NIBBLES])
def test_pairs_of_words_have_30_bits(name: str) -> None:
    """Beside 2^29 odd numbers are multiples of the unit, but of no larger one."""
    torch.manual_seed(0)
    columns, spike = 128 if name in PAIRED else 64, 45
    weight = without(MAKERS[name](torch.randn(16, columns, dtype=torch.bfloat16)), spike)
    x = torch.randint(-(2**4), 2**4, (1, columns)) * 2.0 + 1.0
    x[0, spike] = 2.0**29
    beside_a_far_larger_one(weight, spike, x)


@pytest.mark.parametrize("name", NIBBLES)
def test_a_few_rows_are_each_what_they_are_by_themselves(name: str) -> None:
    torch.manual_seed(4)
    weight = MAKERS[name](torch.randn(24, 256, dtype=torch.bfloat16))
    rows = torch.cat([ROWS[row](256) for row in ROWS])
    whole = native_products(weight, in_integers=True)
    for first in range(len(rows) - 1):
        x = rows[first : first + 2]
        found = whole.of_numbers(library.LIBRARY, x)
        each = [whole.of_numbers(library.LIBRARY, row) for row in x.split(1)]
        assert torch.equal(found, torch.cat(each))


def test_every_nibble_is_exact() -> None:
    codes = torch.arange(16).repeat(8)
    codes = torch.stack([codes, codes.flip(0)])
    weight = MAKERS["int4 none 32"](torch.randn(2, 128))
    weight = with_part(weight, "qdata", pack_nibbles(codes.to(torch.uint8)))
    weight = with_part(weight, "scale", torch.full((2, 4), 0.75))
    assert torch.equal(one_hot_products(weight, in_integers=True), (codes - 8) * 0.75)
    weight = MAKERS[f"mx {FP4}"](torch.randn(2, 128))
    for name, part in (
        ("qdata", pack_nibbles(codes.to(torch.uint8)).view(weight.parts["qdata"].dtype)),
        ("scale", torch.full((2, 4), 126, dtype=torch.uint8).view(weight.parts["scale"].dtype)),
    ):
        weight = with_part(weight, name, part)
    values = decode(codes.to(torch.uint8), element_of("float4_e2m1fn_x2"))
    assert torch.equal(one_hot_products(weight, in_integers=True), values / 2)


@pytest.mark.parametrize("name", NIBBLES)
def test_integers_give_what_floats_give(name: str) -> None:
    """Where sums are exact in both: small integers, and scales that are powers of two."""
    torch.manual_seed(1)
    weight = MAKERS[name](torch.randn(24, 256, dtype=torch.bfloat16))
    powers = 2.0 ** torch.randint(-3, 4, weight.parts["scale"].shape)
    if weight.spec.kind == "int4":
        weight = with_part(weight, "scale", powers)
        if "zero_point" in weight.parts:
            dtype = weight.parts["zero_point"].dtype
            whole = torch.randint(0, 16, weight.parts["zero_point"].shape)
            weight = with_part(weight, "zero_point", whole.to(dtype))
    else:
        scale = weight.parts["scale"]
        codes = powers.to(scale.dtype) if scale.is_floating_point() else scale
        weight = with_part(weight, "scale", codes)
    if "per_tensor_scale" in weight.parts:
        weight = with_part(weight, "per_tensor_scale", torch.tensor(1.0))
    x = torch.randint(-128, 129, (1, 256)).to(torch.bfloat16)
    for row in (x, x * 0, x.float()):
        floats = native_products(weight).of_numbers(library.LIBRARY, row)
        found = native_products(weight, in_integers=True).of_numbers(library.LIBRARY, row)
        assert torch.equal(found, floats)


@pytest.mark.parametrize("rows", [4, 16])
def test_rows_that_share_scales(rows: int) -> None:
    torch.manual_seed(5)
    weight = MAKERS["int4 none 32"](torch.randn(16, 512, dtype=torch.bfloat16))
    weight = with_part(weight, "scale", torch.rand(16 // rows, 16) + 0.5)
    weight = replace(weight, spec=replace(weight.spec, block_size=(rows, 32)))
    packed = Cpu().pack(weight, CPU)
    assert packed.layout.startswith("native nibbles")
    for x in (torch.randn(1, 512).to(torch.bfloat16), spiked(512, 1)):
        check(Cpu().linear(x, packed), x, weight, None)


@pytest.mark.parametrize("name", ["int4 none 32", "int4 int 64", f"mx {FP4}"])
def test_a_small_number_times_a_large_scale_is_no_infinity(name: str) -> None:
    """Of a stray, and of what is put beside an odd one."""
    weight = MAKERS[name](torch.randn(4, 64))
    codes = torch.full((4, 64), 6, dtype=torch.uint8)  # 4 of fp4
    codes[:, :2] = 15  # 7 of int4
    weight = with_part(weight, "qdata", pack_nibbles(codes).view(weight.parts["qdata"].dtype))
    if "mx" in name:
        huge = torch.full_like(weight.parts["scale"].view(torch.uint8), 254)  # 2**127
        weight = with_part(weight, "scale", huge.view(weight.parts["scale"].dtype))
    else:
        weight = with_part(weight, "scale", torch.full((4, weight.parts["scale"].shape[1]), 1e38))
    if "zero_point" in weight.parts:
        weight = with_part(weight, "zero_point", torch.zeros_like(weight.parts["zero_point"]))
    x = torch.zeros(1, 64, dtype=torch.bfloat16)
    x[0, 40], x[0, 41] = 1e-10, 1.3e-13
    floats = native_products(weight).of_numbers(library.LIBRARY, x)
    assert bool(floats.isfinite().all())
    found = native_products(weight, in_integers=True).of_numbers(library.LIBRARY, x)
    torch.testing.assert_close(found, floats)


@pytest.mark.parametrize("number", [float("inf"), -float("inf"), float("nan")])
@pytest.mark.parametrize("name", NIBBLES)
def test_infinities_go_where_they_go_in_floats(name: str, number: float) -> None:
    torch.manual_seed(2)
    weight = MAKERS[name](torch.randn(24, 256, dtype=torch.bfloat16))
    x = torch.randn(1, 256, dtype=torch.bfloat16)
    x[0, 77] = number
    floats = native_products(weight).of_numbers(library.LIBRARY, x)
    found = native_products(weight, in_integers=True).of_numbers(library.LIBRARY, x)
    torch.testing.assert_close(found, floats, rtol=0, atol=0, equal_nan=True)


def test_what_is_taken_from_nibbles_has_to_be_a_small_integer() -> None:
    weight = MAKERS["int4 int 64"](torch.randn(16, 128, dtype=torch.bfloat16))
    zero_point = torch.zeros_like(weight.parts["zero_point"])
    for zero, layout in (
        (0, "native nibbles"),
        (31, "native nibbles"),
        (32, "native"),
        (-16, "native"),
    ):
        held = with_part(weight, "zero_point", torch.full_like(zero_point, zero))
        assert Cpu().pack(held, CPU).layout.split(",")[0] == layout
        x = torch.randn(1, 128)
        check(Cpu().linear(x, Cpu().pack(held, CPU)), x, held, None)


def test_scales_that_are_not_finite_are_left_to_floats() -> None:
    for name in NIBBLES[:4]:
        weight = MAKERS[name](torch.randn(16, 128, dtype=torch.bfloat16))
        scale = weight.parts["scale"].clone()
        scale[3, 0] = float("inf")
        layout = Cpu().pack(with_part(weight, "scale", scale), CPU).layout
        assert not layout.startswith("native nibbles")


@pytest.mark.parametrize("name", [*NIBBLES, "float8 row", "int8 row"])
@pytest.mark.parametrize("bias_dtype", [torch.bfloat16, torch.float32, torch.float16])
def test_the_bias_is_added_before_the_result_is_rounded(name: str, bias_dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    weight = MAKERS[name](torch.randn(24, 256, dtype=torch.bfloat16))
    packed, x = Cpu().pack(weight, CPU), torch.randn(1, 256, dtype=torch.bfloat16)
    bias = torch.randn(24, 2).to(bias_dtype)
    wide = Cpu().linear(x.float(), packed)
    for held in (bias[:, 0].contiguous(), bias[:, 0]):
        found = Cpu().linear(x, packed, held)
        assert torch.equal(found, (wide + held).to(torch.bfloat16))


def test_results_are_rounded_to_bfloat16_as_torch_does() -> None:
    """Of halves to the even one; NaN and infinities stay what they are."""
    weight = MAKERS["float8 row"](torch.ones(1, 32))
    scale = torch.tensor([[1.0]])
    weight = with_part(weight, "qdata", torch.ones(1, 32).to(torch.float8_e4m3fn))
    weight = with_part(weight, "scale", scale)
    halves = torch.tensor([0x3F80_8000, 0x3F81_8000, 0x3F80_8001, 0x3F80_7FFF], dtype=torch.int32)
    others = torch.tensor([float("nan"), float("inf"), -float("inf"), 3.4e38, -1e-39, -0.1])
    products = native_products(weight)
    for number in torch.cat([halves.view(torch.float32), others]):
        x = torch.zeros(1, 32, dtype=torch.bfloat16)
        found = products.of_numbers(library.LIBRARY, x, number.reshape(1))
        expected = number.reshape(1, 1).to(torch.bfloat16)
        torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("exponent", [103, 104, 118, 123])
def test_sums_of_large_numbers_overflow_no_sooner_than_in_floats(exponent: int) -> None:
    """Where scales are small: they multiply sums in integers, and each number in floats."""
    for name in NIBBLES[2:4]:
        weight = MAKERS[name](torch.randn(16, 256) * 2.0**-20)
        x = torch.full((1, 256), 2.0**exponent)
        floats = native_products(weight).of_numbers(library.LIBRARY, x)
        found = native_products(weight, in_integers=True).of_numbers(library.LIBRARY, x)
        assert bool(floats.isfinite().all())
        assert bool(found.isfinite().all())
