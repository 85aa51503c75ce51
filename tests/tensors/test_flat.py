"""NF4 weights, optimizer states and unsigned integers, where they differ from other types."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support import flat
from support.tensors import same_bytes

import aoserial
from aoserial.errors import (
    BlockCutError,
    FieldError,
    OptionError,
    QuantizationError,
    UnsupportedOperationError,
)
from aoserial.testing import refused


def test_an_nf4_layer_is_that_of_the_dequantized_weight() -> None:
    weight = aoserial.NF4Tensor.from_float(
        torch.randn(32, 64, dtype=torch.bfloat16), block_size=32, scaler_block_size=8
    )
    x, bias = torch.randn(3, 64), torch.randn(32)
    assert weight.dequantize().dtype == torch.bfloat16
    assert torch.equal(F.linear(x, weight, bias), F.linear(x, weight.dequantize().float(), bias))


def test_the_blocks_of_nf4_are_torchaos_unless_told() -> None:
    weight = aoserial.NF4Tensor.from_float(torch.randn(64, 256))
    assert (weight.block_size, weight.scaler_block_size) == (64, 256)
    assert weight.quantization_factor.shape == (1,)
    with pytest.raises(OptionError, match="expected an even number"):
        aoserial.NF4Tensor.from_float(torch.randn(64, 256), block_size=7)


def test_nf4_is_cut_between_blocks_of_scales() -> None:
    weight = flat.make_nf4()
    assert weight[2:6].quantization_factor.shape == (2,)
    with refused(BlockCutError, because="'quantization_factor'; the nearest cuts are 2 and 4"):
        weight[:3]
    with refused(BlockCutError, because="dimension 1 of aoserial.NF4Tensor@1 stays whole"):
        weight[:, :8]


def test_parts_that_do_not_count_all_elements_are_refused() -> None:
    weight = flat.make_8bit()
    with pytest.raises(FieldError, match="scale: shape is .* with numel = 128, not 120"):
        aoserial.OptimState8bit(weight.codes, weight.scale[1:], weight.qmap, True, 8)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("signed", [True, False])
def test_a_value_of_a_state_becomes_the_nearest_of_its_table(bits: int, signed: bool) -> None:
    cls = aoserial.OptimState8bit if bits == 8 else aoserial.OptimState4bit
    x = torch.randn(8, 64) if signed else torch.rand(8, 64)
    state = cls.from_float(x, signed=signed, block_size=32)
    assert state.qmap.shape == (2**bits,)
    assert state.qmap.diff().gt(0).all()
    distances = (x.view(-1, 32, 1) / state.scale.view(-1, 1, 1) - state.qmap).abs()
    nearest = distances.amin(-1) * state.scale[:, None]
    found = (x - state.dequantize()).abs().view(-1, 32)
    torch.testing.assert_close(found, nearest, atol=1e-6, rtol=0)


def test_a_state_that_cannot_be_quantized_is_refused() -> None:
    for cls in (aoserial.OptimState8bit, aoserial.OptimState4bit, aoserial.OptimStateFp8):
        with pytest.raises(QuantizationError, match="60 elements are not whole blocks of 32"):
            cls.from_float(torch.ones(60), block_size=32)
        with pytest.raises(QuantizationError, match="infinity or NaN"):
            cls.from_float(torch.full((64,), float("inf")), block_size=32)
        with pytest.raises(OptionError, match="expected"):
            cls.from_float(torch.ones(64), block_size=0)


def test_a_state_of_any_number_of_dimensions_is_a_state() -> None:
    for shape in [(64,), (8, 8), (2, 4, 8), (2, 2, 2, 8)]:
        state, half = flat.make_4bit(*shape), shape[0] // 2
        assert state.dequantize().shape == shape
        assert torch.equal(state[half:].dequantize(), state.dequantize()[half:])


def test_a_state_keeps_the_dtype_that_torchao_shows_and_stands_for_float32(tmp_path) -> None:
    codes = torch.zeros(2, 8).to(torch.float8_e4m3fn)
    state = aoserial.OptimStateFp8(codes, torch.ones(2), 8, torch.bfloat16, dtype=torch.float32)
    aoserial.save({"state": state}, tmp_path / "state.safetensors")
    loaded = aoserial.load(tmp_path / "state.safetensors")["state"]
    assert (loaded.shown_dtype, loaded.dequantize().dtype) == (torch.bfloat16, torch.float32)


def test_unsigned_integers_stay_integers(tmp_path) -> None:
    codes = torch.randint(0, 4, (3, 5), dtype=torch.uint8)
    held = aoserial.UIntTensor(codes, 2, dtype=torch.uint8)
    aoserial.save({"codes": held}, tmp_path / "codes.safetensors")
    loaded = aoserial.load(tmp_path / "codes.safetensors")["codes"]
    assert same_bytes(loaded.dequantize(), codes)
    assert loaded.to(torch.bfloat16).dequantize().dtype == torch.bfloat16
    with refused(UnsupportedOperationError, because="cannot be torch.int8"):
        loaded.to(torch.int8)


def test_a_layer_of_codes_whose_zero_is_another_is_refused() -> None:
    signs = aoserial.UIntTensor(torch.ones(4, 8, dtype=torch.uint8), 2, 1, dtype=torch.uint8)
    with refused(UnsupportedOperationError, because="1 stands for zero"):
        F.linear(torch.randn(2, 8), signs)
