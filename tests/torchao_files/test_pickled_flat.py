"""NF4 weights, optimizer states and torchao's first tensors of few bits, from pickles."""

from __future__ import annotations

import pytest
import torch
from support.cases import case_id, pickled_cases
from support.raw import raw, upgraded
from support.tensors import same_bytes

import aoserial
from aoserial.errors import AoserialError, FieldError
from aoserial.tensors import from_record

CASES = (
    *("nf4_bf16", "nf4_fp32", "nf4_config", "optim_adamw8bit", "optim_adam8bit_bf16"),
    *("optim_adamw4bit", "optim_adamwfp8", "uint4_tensor", "uint4_perchannel", "uint2_tensor"),
    *("bitnet_uint2_tensor", "bitnet_packed2bit"),
)
NF4 = "torchao.dtypes.nf4tensor.NF4Tensor"
NF4_OF_0_18 = "torchao.quantization.quantize_.workflows.nf4.nf4_tensor.NF4Tensor"
STATES = "torchao.prototype.low_bit_optim.subclass_"
UINT4 = "torchao.dtypes.uint4"
BITNET = "torchao.prototype.quantized_training.bitnet.BitNetPacked2bitLinearWeight"


def built(record):
    return from_record(upgraded(record).record)


@pytest.mark.parametrize("case", list(pickled_cases(*CASES)), ids=case_id)
def test_a_file_stands_for_what_torchao_had_in_it(case):
    state = aoserial.load(case / "model.pt")
    expected = torch.load(case / "expected.pt", weights_only=True)["dequantized"]
    for name, values in expected.items():
        assert same_bytes(state[name.replace("/", ".")].dequantize(), values), name


@pytest.mark.parametrize(
    "case", list(pickled_cases("optim_adamw8bit", "optim_adamw4bit")), ids=case_id
)
def test_the_tables_of_states_are_those_that_from_float_makes(case):
    state = aoserial.load(case / "model.pt")
    for name in ("state.0.exp_avg", "state.0.exp_avg_sq"):
        held = state[name]
        made = type(held).from_float(torch.rand(256), signed=held.signed)
        assert same_bytes(made.qmap, held.qmap)


@pytest.mark.parametrize("case", list(pickled_cases(*CASES)), ids=case_id)
def test_a_migrated_file_stands_for_the_same(case, tmp_path):
    aoserial.migrate(case / "model.pt", tmp_path / "model.safetensors")
    before, after = aoserial.load(case / "model.pt"), aoserial.load(tmp_path / "model.safetensors")
    assert before.keys() == after.keys()
    for name, tensor in before.items():
        if isinstance(tensor, aoserial.VersionedTensor):
            assert same_bytes(tensor.dequantize(), after[name].dequantize())


# -- NF4 ----------------------------------------------------------------------------------------


def nf4(path: str, dtype: str, **more):
    weight = aoserial.NF4Tensor.from_float(
        torch.randn(4, 64, dtype=torch.bfloat16), block_size=16, scaler_block_size=8
    )
    parts = {name: getattr(weight, name) for name in weight.part_names()}
    fields = {"block_size": 16, "n_blocks": 16, "scaler_block_size": 8, **parts, **more}
    return weight, raw(path, (4, 64), dtype, **fields)


@pytest.mark.parametrize(
    ("path", "dtype"), [(NF4, "float8_e5m2fnuz"), (NF4, "bfloat16"), (NF4_OF_0_18, "bfloat16")]
)
def test_nf4_has_the_dtype_of_its_table_which_0_1_did_not_say(path, dtype):
    weight, record = nf4(path, dtype)
    found = built(record)
    assert found.dtype == torch.bfloat16
    assert same_bytes(found.dequantize(), weight.dequantize())


def test_nf4_of_another_dtype_than_its_values_is_refused():
    with pytest.raises(FieldError, match="dtype: is float32, but the values .* are bfloat16"):
        built(nf4(NF4, "float32")[1])
    with pytest.raises(AoserialError, match="quantized_scalers"):
        built(nf4(NF4, "bfloat16", quantized_scalers=torch.zeros(15, dtype=torch.int8))[1])


# -- optimizer states ---------------------------------------------------------------------------


def state_fields(codes: torch.Tensor, **more):
    return {"codes": codes, "scale": torch.rand(8), "block_size": 16, **more}


def test_codes_of_a_state_are_looked_up_and_scaled_in_blocks():
    codes, qmap = torch.randint(0, 256, (4, 32), dtype=torch.uint8), torch.rand(256)
    fields = state_fields(codes, qmap=qmap, signed=False)
    state = built(raw(f"{STATES}8bit.OptimState8bit", (4, 32), "float32", **fields))
    expected = qmap[codes.long()].view(8, 16) * fields["scale"][:, None]
    assert same_bytes(state.dequantize(), expected.view(4, 32))
    assert (state.signed, state.shown_dtype) == (False, None)


def test_the_dtype_that_a_state_shows_is_not_that_of_its_values():
    codes = torch.randn(4, 32).to(torch.float8_e4m3fn)
    record = raw("torchao.optim.subclass_fp8.OptimStateFp8", (4, 32), **state_fields(codes))
    state = built(record)
    assert (state.dtype, state.shown_dtype) == (torch.float32, torch.bfloat16)


def test_a_state_of_four_bits_is_flat_and_has_the_shape_of_the_tensor():
    fields = state_fields(torch.arange(64, dtype=torch.uint8), qmap=torch.arange(16.0), signed=True)
    path = f"{STATES}4bit.OptimState4bit"
    state = built(raw(path, (4, 32), "float32", _shape=(4, 32), **fields))
    codes = [code for byte in range(64) for code in (byte >> 4, byte & 15)]
    expected = torch.tensor(codes, dtype=torch.float32).view(8, 16) * fields["scale"][:, None]
    assert same_bytes(state.dequantize(), expected.view(4, 32))
    with pytest.raises(FieldError, match=r"_shape: is \(8, 16\), the tensor's is \(4, 32\)"):
        built(raw(path, (4, 32), "float32", _shape=(8, 16), **fields))


# -- few bits -----------------------------------------------------------------------------------


def test_integers_come_out_of_the_high_bits_first():
    packed = torch.tensor([[0x1B, 0xE4]], dtype=torch.uint8)
    four = built(raw(f"{UINT4}.UInt4Tensor", (1, 4), "uint4", elem=packed))
    assert four.dequantize().tolist() == [[1, 11, 14, 4]]
    two = built(raw("torchao.prototype.dtypes.uint2.UInt2Tensor", (1, 8), "uint2", elem=packed))
    assert two.dequantize().tolist() == [[0, 1, 2, 3, 3, 2, 1, 0]]
    assert (two.dequantize().dtype, two.bit_width, two.zero_code) == (torch.uint8, 2, 0)
    signs = raw("torchao.prototype.dtypes.bitnet.BitnetTensor", (1, 8), "uint8", elem=packed)
    assert built(signs).zero_code == 1


def test_uint4_weights_are_codes_times_the_scale_of_their_row():
    packed, scales = torch.tensor([[0x1F, 0x20], [0x34, 0xF0]], dtype=torch.uint8), torch.rand(2)
    path = f"{UINT4}.PerChannelSymmetricWeightUInt4Tensor"
    weight = built(raw(path, (2, 4), "uint4", elem=packed, scales=scales))
    codes = torch.tensor([[1.0, 15, 2, 0], [3, 4, 15, 0]])
    assert same_bytes(weight.dequantize(), codes * scales[:, None])


def test_packed_bitnet_weights_are_signed_codes_that_ask_for_int8_activations():
    packed = torch.tensor([[0b00_01_10_11]], dtype=torch.uint8).view(torch.int8)
    weight = built(raw(BITNET, (1, 4), int_data=packed, scale=torch.tensor(0.5).bfloat16()))
    assert weight.qdata.tolist() == [[0, 1, -2, -1]]
    assert weight.dequantize().tolist() == [[0, 0.5, -1, -0.5]]
    x = torch.tensor([[1.0, -127, 0.4, 2.6]])  # in steps of one
    found = torch.nn.functional.linear(x, weight.to(torch.float32))
    assert found.tolist() == [[0.5 * -127 - 0.5 * 3]]
