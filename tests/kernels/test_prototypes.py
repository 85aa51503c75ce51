"""The arithmetic of torchao's prototypes: what is refused, and what lies off the beaten track."""

from __future__ import annotations

import pytest
import torch

from aoserial.errors import FieldError, QuantizationError
from aoserial.kernels import (
    densify,
    dequantize_codebook,
    dequantize_float8_training,
    dequantize_floatx,
    dequantize_gguf,
    quantize_floatx,
    sparsify,
)

BLOCKS = torch.ones(3, 4, 4)
COLUMNS = torch.tensor([0, 3, 1])


@pytest.mark.parametrize(
    ("starts", "columns", "shape", "said"),
    [
        ([0, 2, 4], [0, 3, 1], (8, 16), "rise from 0 to 3"),
        ([1, 2, 3], [0, 3, 1], (8, 16), "rise from 0 to 3"),
        ([0, 4, 3], [0, 3, 1], (8, 16), "rise from 0 to 3"),
        ([0, 2, 3], [0, 4, 1], (8, 16), "not among the 4"),
        ([0, 2, 3], [0, -1, 1], (8, 16), "not among the 4"),
        ([0, 3], [0, 3, 1], (8, 16), "do not give a matrix"),
        ([0, 2, 3], [0, 3, 1], (8, 18), "do not give a matrix"),
    ],
)
def test_indices_that_lay_blocks_elsewhere_are_refused(starts, columns, shape, said):
    with pytest.raises(FieldError, match=said):
        densify(torch.tensor(starts), torch.tensor(columns), BLOCKS, shape=shape)


def test_a_matrix_without_blocks_is_zero():
    none = torch.zeros(0, 4, 4)
    made = densify(torch.zeros(3, dtype=torch.int64), COLUMNS[:0], none, shape=(8, 16))
    assert torch.equal(made, torch.zeros(8, 16))


def test_rows_of_blocks_may_be_empty():
    made = densify(torch.tensor([0, 0, 3]), COLUMNS.int(), BLOCKS, shape=(8, 16))
    assert torch.equal(made[4:].sum(0), torch.tensor([4.0] * 8 + [0.0] * 4 + [4.0] * 4))
    assert not made[:4].any()


def test_a_code_may_stand_for_several_rows_of_a_stack():
    codes = torch.randint(0, 8, (3, 2, 4))
    codebook = torch.randn(3, 1, 2, 8, 2, 4)
    options = {"rows_per_table": 4, "columns_per_table": 8, "dtype": torch.float32}
    w = dequantize_codebook(codes, codebook, None, **options)
    assert w.shape == (3, 4, 16)
    for expert in range(3):
        entry = codebook[expert, 0, 1, int(codes[expert, 1, 2])]
        assert torch.equal(w[expert, 2:4, 8:12], entry)


def test_a_scaled_entry_is_rounded_to_the_dtype_of_the_table_first():
    codes, codebook = torch.arange(8).reshape(1, 8), torch.randn(1, 1, 8, 1, 1).bfloat16()
    scale = torch.rand(1, 1)
    w = dequantize_codebook(
        codes, codebook, scale, rows_per_table=1, columns_per_table=8, dtype=torch.float32
    )
    assert torch.equal(w, w.bfloat16().float())


def test_offsets_of_gguf_are_added_after_the_scaled_code_was_rounded():
    parts = {name: torch.rand(2, 8).bfloat16() for name in ("scale", "offset")}
    parts |= {name: torch.rand(2, 1).bfloat16() for name in ("super_scale", "super_offset")}
    codes = torch.randint(0, 16, (2, 256), dtype=torch.uint8)
    w = dequantize_gguf(
        codes, *parts.values(), block_size=(1, 32), superblock_size=256, dtype=torch.bfloat16
    )
    scale, offset = parts["super_scale"] * parts["scale"], parts["super_offset"] * parts["offset"]
    expected = codes.bfloat16().reshape(2, 8, 32) * scale[..., None] + offset[..., None]
    assert torch.equal(w, expected.reshape(2, 256))


@pytest.mark.parametrize(("exponent", "mantissa"), [(0, 3), (3, -1), (4, 3)])
def test_formats_beyond_seven_bits_are_refused(exponent, mantissa):
    codes, scale = torch.zeros(2, 4, dtype=torch.uint8), torch.ones(2, 1)
    options = {"block_size": (1, 4), "dtype": torch.float32}
    with pytest.raises(FieldError, match="no format"):
        dequantize_floatx(codes, scale, exponent_bits=exponent, mantissa_bits=mantissa, **options)


def test_small_floats_have_denormals_and_no_infinities():
    codes = torch.arange(64, dtype=torch.uint8).reshape(2, 32)
    options = {"block_size": (1, 32), "dtype": torch.float32}
    w = dequantize_floatx(codes, torch.ones(2, 1), exponent_bits=3, mantissa_bits=2, **options)
    assert w[0, :6].tolist() == [0, 0.0625, 0.125, 0.1875, 0.25, 0.3125]
    assert w.max() == 28
    assert torch.equal(w[1], -w[0])
    beyond = dequantize_floatx(codes + 64, torch.ones(2, 1), exponent_bits=3, mantissa_bits=2,
                               **options)  # fmt: skip
    assert beyond.isnan().all()


@pytest.mark.parametrize("shape", [(16,), (1, 1, 1), (3, 1), (16, 8)])
def test_a_scale_that_does_not_broadcast_is_refused(shape):
    codes = torch.zeros(8, 16).to(torch.float8_e4m3fn)
    with pytest.raises(FieldError, match="scale: .*expected one number or one to broadcast"):
        dequantize_float8_training(codes, torch.ones(shape), dtype=torch.float32)


def test_quantized_small_floats_are_the_nearest_codes():
    w = torch.randn(4, 64)
    w[2] = 0
    codes, scale = quantize_floatx(w, exponent_bits=2, mantissa_bits=2, block_size=(1, 64))
    assert scale[2] == 1
    options = {"exponent_bits": 2, "mantissa_bits": 2, "block_size": (1, 64)}
    error = (dequantize_floatx(codes, scale, dtype=torch.float32, **options) - w).abs()
    for other in range(32):
        elsewhere = torch.full_like(codes, other)
        found = dequantize_floatx(elsewhere, scale, dtype=torch.float32, **options)
        assert (error <= (found - w).abs() + 1e-6).all()


@pytest.mark.parametrize("block", [4, 8])
def test_a_matrix_comes_back_from_the_blocks_that_are_not_zero(block):
    w = torch.randn(16, 24)
    w[:block] = 0
    w[8:, 8:16] = 0
    starts, columns, values = sparsify(w, block)
    assert starts[1] == 0
    assert len(values) < 16 * 24 // block**2
    assert torch.equal(densify(starts, columns, values, shape=w.shape), w)
    with pytest.raises(QuantizationError, match="do not fill"):
        sparsify(w, 5)
