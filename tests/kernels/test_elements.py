"""The small floating-point formats against tables written out by hand, and exact arithmetic."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.tensors import same_bytes

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels.arithmetic import (
    ELEMENTS,
    FP4,
    decode,
    e8m0,
    element_of,
    encode,
    pack_nibbles,
    unpack_nibbles,
)

# What the codes without a sign stand for, in order (OCP MX 1.0, 5.3.2 and 5.3.3).
E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]
E2M3 = [
    *(0, 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875),
    *(1, 1.125, 1.25, 1.375, 1.5, 1.625, 1.75, 1.875),
    *(2, 2.25, 2.5, 2.75, 3, 3.25, 3.5, 3.75),
    *(4, 4.5, 5, 5.5, 6, 6.5, 7, 7.5),
]
E3M2 = [
    *(0, 0.0625, 0.125, 0.1875),
    *(0.25, 0.3125, 0.375, 0.4375),
    *(0.5, 0.625, 0.75, 0.875),
    *(1, 1.25, 1.5, 1.75),
    *(2, 2.5, 3, 3.5),
    *(4, 5, 6, 7),
    *(8, 10, 12, 14),
    *(16, 20, 24, 28),
]
TABLES = {"float4_e2m1fn_x2": E2M1, "float6_e2m3fn": E2M3, "float6_e3m2fn": E3M2}

# largest value and the exponent of the largest power of two (OCP MX 1.0, tables 3 to 5)
LIMITS = {
    "float8_e4m3fn": (448, 8),
    "float8_e5m2": (57344, 15),
    "float6_e2m3fn": (7.5, 2),
    "float6_e3m2fn": (28, 4),
    "float4_e2m1fn_x2": (6, 2),
}


@pytest.mark.parametrize("name", TABLES)
def test_every_code_stands_for_what_the_format_says(name: str) -> None:
    table = TABLES[name]
    codes = torch.arange(2 * len(table), dtype=torch.uint8)
    expected = torch.tensor([*table, *(-float(value) for value in table)])
    assert same_bytes(decode(codes, ELEMENTS[name]), expected)  # -0.0 as well


@pytest.mark.parametrize("name", TABLES)
def test_a_byte_that_is_no_code_gives_nan(name: str) -> None:
    codes = torch.arange(2 * len(TABLES[name]), 256).to(torch.uint8)
    assert decode(codes, ELEMENTS[name]).isnan().all()


@pytest.mark.parametrize("name", LIMITS)
def test_the_limits_of_each_format(name: str) -> None:
    largest = element_of(name).largest
    assert (largest, math.floor(math.log2(largest))) == LIMITS[name]


def test_another_name_is_no_element() -> None:
    with pytest.raises(FieldError, match="int8 is no element of MX"):
        element_of("int8")


@pytest.mark.parametrize("name", ELEMENTS)
def test_every_value_of_a_format_is_its_own_code(name: str) -> None:
    element = ELEMENTS[name]
    if element.dtype is None:
        codes = torch.arange(2 * len(TABLES[name]), dtype=torch.uint8)
    else:
        codes = torch.arange(256).to(torch.uint8).view(element.dtype)
        codes = codes[codes.float().isfinite()]
    assert same_bytes(encode(decode(codes, element), element), codes)


@pytest.mark.parametrize("name", TABLES)
def test_halfway_between_two_codes_the_even_one_is_taken(name: str) -> None:
    table = torch.tensor(TABLES[name])
    halfway = (table[:-1] + table[1:]) / 2
    lower = torch.arange(len(halfway), dtype=torch.uint8)
    element = ELEMENTS[name]
    assert torch.equal(encode(halfway, element), lower + lower % 2)
    assert torch.equal(encode(halfway.nextafter(torch.tensor(0.0)), element), lower)
    assert torch.equal(encode(halfway.nextafter(torch.tensor(99.0)), element), lower + 1)


@pytest.mark.parametrize("name", LIMITS)
def test_what_is_beyond_the_range_becomes_the_largest(name: str) -> None:
    element, limit = ELEMENTS[name], LIMITS[name][0]
    values = torch.tensor([limit * 1.2, limit * 1e6, -limit * 2, math.inf, -math.inf])
    found = decode(encode(values, element), element)
    assert found.tolist() == [limit, limit, -limit, limit, -limit]


@settings(deadline=None)
@given(
    name=st.sampled_from(sorted(TABLES)),
    values=st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20),
)
def test_encoding_takes_the_nearest_value(name: str, values: list[float]) -> None:
    """In exact arithmetic; ties to the even code, beyond the range to the last."""
    found = encode(torch.tensor(values, dtype=torch.float32), ELEMENTS[name]).tolist()
    table = TABLES[name]
    for value, code in zip(values, found, strict=True):
        magnitude = min(abs(value), 2.0 * table[-1])
        nearest = min(
            range(len(table)),
            key=lambda index: (abs(Fraction(table[index]) - Fraction(magnitude)), index % 2),
        )
        assert code == nearest + (math.copysign(1, value) < 0) * len(table)


def test_e8m0_is_a_power_of_two_and_255_is_nan() -> None:
    found = e8m0(torch.arange(256).to(torch.uint8)).tolist()
    assert found[:-1] == [2.0 ** (byte - 127) for byte in range(255)]
    assert math.isnan(found[-1])


def test_even_k_is_in_the_low_nibble() -> None:
    codes = torch.tensor([[1, 2, 15, 0], [0, 8, 7, 9]], dtype=torch.uint8)
    packed = pack_nibbles(codes)
    assert packed.tolist() == [[0x21, 0x0F], [0x80, 0x97]]
    assert torch.equal(unpack_nibbles(packed), codes)


@pytest.mark.parametrize("shape", [(0, 4), (3, 0), (2, 3, 6)])
def test_packing_undoes_unpacking(shape: tuple[int, ...]) -> None:
    codes = torch.randint(0, 16, shape, dtype=torch.uint8)
    assert torch.equal(unpack_nibbles(pack_nibbles(codes)), codes)


def test_an_odd_number_of_codes_does_not_fill_bytes() -> None:
    with pytest.raises(QuantizationError, match="must be even, not 3"):
        pack_nibbles(torch.zeros(2, 3, dtype=torch.uint8))


def test_fp4_is_what_nvfp4_uses() -> None:
    assert FP4.magnitudes == tuple(E2M1)
