"""Integer codes with zero points in every domain: by hand, and bounds on the error."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings, strategies as st
from support.tensors import same_bytes

from aoserial.errors import QuantizationError
from aoserial.kernels import (
    dequantize_int4,
    dequantize_int8,
    dequantize_intx,
    quantize_int4,
    quantize_intx,
)
from aoserial.kernels.arithmetic import ZERO_DOMAINS, block_min, expand, pack_nibbles

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def int4(codes: list[int], scale: float, zero: float | None, domain: str) -> list[float]:
    """One row, one group."""
    found = dequantize_int4(
        pack_nibbles(torch.tensor([codes], dtype=torch.uint8)),
        torch.tensor([[scale]]),
        None if zero is None else torch.tensor([[zero]]),
        zero_domain=domain,
        block_size=(1, len(codes)),
        dtype=torch.float32,
    )
    return found[0].tolist()


@pytest.mark.parametrize(
    ("domain", "zero", "expected"),
    [
        ("none", None, [-4.0, -0.5, 0.0, 3.5]),
        ("int", 6.0, [-3.0, 0.5, 1.0, 4.5]),
        ("int", 6.5, [-3.25, 0.25, 0.75, 4.25]),
        ("float", 0.25, [-3.75, -0.25, 0.25, 3.75]),
        ("offset", -3.0, [-3.0, 0.5, 1.0, 4.5]),
    ],
)
def test_int4_by_hand(domain: str, zero: float | None, expected: list[float]) -> None:
    assert int4([0, 7, 8, 15], 0.5, zero, domain) == expected


def test_int4_is_computed_in_float32_whatever_its_parts_are() -> None:
    """(15 - 8) · s + z, each rounded to float32, where bfloat16 would round to 1 / 128."""
    scale, zero = torch.tensor([[0.1]]).bfloat16(), torch.tensor([[0.3]]).bfloat16()
    found = dequantize_int4(
        torch.tensor([[0xF8]], dtype=torch.uint8),
        scale,
        zero,
        zero_domain="float",
        block_size=(1, 2),
        dtype=torch.float32,
    )
    product = torch.tensor(7.0) * scale.float().squeeze()
    assert found.tolist() == [[zero.item(), (product + zero.float().squeeze()).item()]]


@pytest.mark.parametrize("domain", ZERO_DOMAINS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_narrow_int4_is_computed_as_intx_is(dtype: torch.dtype, domain: str) -> None:
    codes = torch.randint(0, 16, (4, 8), dtype=torch.uint8)
    scale, zero = torch.rand(4, 2).to(dtype), torch.randint(0, 16, (4, 2)).to(dtype)
    facts = {"zero_domain": domain, "block_size": (1, 4), "dtype": dtype}
    zeros = {"none": (None, None), "int": (zero, zero - 8)}.get(domain, (zero, zero))
    narrow = dequantize_int4(pack_nibbles(codes), scale, zeros[0], narrow_arithmetic=True, **facts)
    signed = codes.to(torch.int8) - (8 if domain != "offset" else 0)
    assert same_bytes(narrow, dequantize_intx(signed, scale, zeros[1], **facts))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_intx_is_computed_in_the_dtype_asked_for(dtype: torch.dtype) -> None:
    codes = torch.randint(-8, 8, (4, 8), dtype=torch.int8)
    scale, zero = torch.rand(4, 2), torch.randint(-8, 8, (4, 2), dtype=torch.int8)
    kwargs = {"block_size": (1, 4), "dtype": dtype}
    plain = dequantize_int8(codes, scale, **kwargs)
    assert same_bytes(dequantize_intx(codes, scale, zero_domain="none", **kwargs), plain)
    assert same_bytes(
        dequantize_intx(codes, scale, zero, zero_domain="int", **kwargs),
        dequantize_int8(codes, scale, zero, **kwargs),
    )
    added = torch.rand(4, 2)
    expected = (plain + added.repeat_interleave(4, 1)).to(dtype)
    for domain in ("float", "offset"):  # the same, as the middle of signed codes is 0
        found = dequantize_intx(codes, scale, added, zero_domain=domain, **kwargs)
        assert same_bytes(found, expected)


@pytest.mark.parametrize("domain", ZERO_DOMAINS)
def test_act_order_gives_each_column_the_scale_of_its_group(domain: str) -> None:
    """The same as putting the columns of each group side by side, and back afterwards."""
    index = torch.tensor([2, 0, 1, 1, 0, 2, 2, 0, 1, 2, 1, 0])
    order = index.argsort(stable=True)
    signed = torch.randint(-8, 8, (5, 12), dtype=torch.int8)
    codes = (signed + 8).to(torch.uint8)
    scale = torch.rand(5, 3)
    zero = None if domain == "none" else torch.rand(5, 3)
    for dequantize, qdata, pack in (
        (dequantize_intx, signed, lambda given: given),
        (dequantize_int4, codes, pack_nibbles),
    ):
        kwargs = {"zero_domain": domain, "block_size": (1, 4), "dtype": torch.float32}
        found = dequantize(pack(qdata), scale, zero, group_index=index, **kwargs)
        in_groups = dequantize(pack(qdata[:, order]), scale, zero, **kwargs)
        assert torch.equal(found[:, order], in_groups)


def test_quantizing_int4_by_hand() -> None:
    w = torch.tensor([[-3.75, -1.0, 0.25, 3.75]])
    qdata, scale, zero = quantize_int4(w, zero_domain="none", block_size=(1, 4))
    assert (scale.item(), zero) == (0.5, None)
    # -7.5, -2, 0.5, 7.5 steps; ties to even, 8 beyond the range: codes 0, 6, 8, 15
    assert qdata.tolist() == [[0x60, 0xF8]]

    w = torch.tensor([[-1.0, 0.0, 2.0, 6.5]])
    qdata, scale, zero = quantize_int4(w, zero_domain="int", block_size=(1, 4))
    assert (scale.item(), zero.item(), zero.dtype) == (0.5, 2, torch.int8)
    assert qdata.tolist() == [[0x20, 0xF6]]

    w = torch.tensor([[2.0, 3.0, 4.5, 9.5]])
    qdata, scale, zero = quantize_int4(w, zero_domain="float", block_size=(1, 4))
    assert (scale.item(), zero.item()) == (0.5, 6.0)
    assert qdata.tolist() == [[0x20, 0xF5]]
    qdata, scale, zero = quantize_int4(w, zero_domain="offset", block_size=(1, 4))
    assert (scale.item(), zero.item()) == (0.5, 2.0)
    assert qdata.tolist() == [[0x20, 0xF5]]


@pytest.mark.parametrize("bits", range(1, 9))
@pytest.mark.parametrize("domain", ZERO_DOMAINS)
def test_codes_of_every_width_stay_in_their_range(bits: int, domain: str) -> None:
    torch.manual_seed(0)
    w = torch.randn(60, 32)  # so many that no code of few bits is missed
    qdata, _, _ = quantize_intx(w, bit_width=bits, zero_domain=domain, block_size=(1, 16))
    half = 2 ** (bits - 1)
    assert qdata.min() >= -half
    assert qdata.max() <= half - 1
    if domain != "none" and bits < 5:  # both ends of each block have the codes at the ends
        assert qdata.unique().tolist() == list(range(-half, half))


@pytest.mark.parametrize("domain", ZERO_DOMAINS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_scales_have_the_dtype_of_the_weight(domain: str, dtype: torch.dtype) -> None:
    w = torch.randn(4, 8, dtype=dtype)
    _, scale, zero = quantize_int4(w, zero_domain=domain, block_size=(1, 4))
    assert scale.dtype == dtype
    expected = {"none": None, "int": torch.int8}.get(domain, dtype)
    assert (None if zero is None else zero.dtype) == expected


@pytest.mark.parametrize("domain", ZERO_DOMAINS)
@pytest.mark.parametrize("value", [0.0, 3.0, -3.0, 1e-30])
def test_a_block_of_one_value_comes_back(domain: str, value: float) -> None:
    w = torch.full((2, 8), value)
    qdata, scale, zero = quantize_int4(w, zero_domain=domain, block_size=(1, 4))
    found = dequantize_int4(
        qdata, scale, zero, zero_domain=domain, block_size=(1, 4), dtype=torch.float32
    )
    # symmetric: half a step
    torch.testing.assert_close(found, w, rtol=1 / 15 + 1e-6, atol=1e-37)


def test_what_cannot_be_quantized_is_refused() -> None:
    w = torch.ones(2, 4)
    for bad in (math.inf, -math.inf, math.nan):
        w[1, 2] = bad
        for domain in ZERO_DOMAINS:
            with pytest.raises(QuantizationError, match="infinity or NaN"):
                quantize_int4(w, zero_domain=domain, block_size=(1, 4))
    with pytest.raises(QuantizationError, match=r"floating point, not torch\.int8"):
        quantize_int4(torch.ones(2, 2, dtype=torch.int8), zero_domain="int", block_size=(1, 2))
    with pytest.raises(QuantizationError, match="'middle' is none of none, int"):
        quantize_int4(torch.ones(2, 2), zero_domain="middle", block_size=(1, 2))
    with pytest.raises(QuantizationError, match="must be even, not 3"):
        quantize_int4(torch.ones(2, 3), zero_domain="int", block_size=(1, 3))
    for bits in (0, 9):
        with pytest.raises(QuantizationError, match=f"bit_width is {bits}, expected 1 to 8"):
            quantize_intx(torch.ones(2, 2), bit_width=bits, zero_domain="none", block_size=(1, 2))


def test_the_smallest_of_a_ragged_block_ignores_the_padding() -> None:
    x = torch.tensor([[1.0, 7.0, 3.0], [1.0, 2.0, -3.0]])
    assert block_min(x, (1, 2)).tolist() == [[1.0, 3.0], [1.0, -3.0]]


@settings(deadline=None)
@given(
    rows=st.integers(1, 4),
    columns=st.integers(1, 9),
    group=st.integers(1, 9),
    bits=st.integers(2, 8),
    domain=st.sampled_from(ZERO_DOMAINS),
    shift=st.sampled_from([0.0, 3.0, -10.0]),
    seed=st.integers(0, 2**16),
)
def test_intx_is_off_by_about_half_a_step(
    rows: int, columns: int, group: int, bits: int, domain: str, shift: float, seed: int
) -> None:
    """`int` by a whole step: its zero point is rounded, so the range is off by half a step too."""
    w = torch.randn(rows, columns, generator=torch.Generator().manual_seed(seed)) + shift
    block = (1, group)
    qdata, scale, zero = quantize_intx(w, bit_width=bits, zero_domain=domain, block_size=block)
    assert scale.shape == (rows, -(-columns // group))
    found = dequantize_intx(
        qdata, scale, zero, zero_domain=domain, block_size=block, dtype=torch.float32
    )
    steps = 1.0 if domain == "int" else 0.5
    rounding = 1e-5 * w.abs().max()
    assert ((found - w).abs() <= expand(scale, block, w.shape) * (steps + 1e-3) + rounding).all()
