"""MX and NVFP4 tensors as torchao pickled them before it wrote safetensors."""

from __future__ import annotations

import pytest
import torch
from support.raw import identify, instance, member, raw, upgraded

from aoserial.errors import AoserialError, FieldError, MissingFieldError, UnsupportedTensorError
from aoserial.migrations import Upgrader
from aoserial.record.pickled import decode_pickle
from aoserial.schema import FrozenMap, Nested, Symbol
from aoserial.storage.pickle import Name, TorchDevice, WrapperSubclass
from aoserial.torchao.steps.microscaling import with_mx_activation

MX = "torchao.prototype.mx_formats.mx_tensor.MXTensor"
MX_KWARGS = "torchao.prototype.mx_formats.mx_tensor.QuantizeTensorToMXKwargs"
NVFP4 = "torchao.prototype.mx_formats.nvfp4_tensor.NVFP4Tensor"
CHOICE = "torchao.prototype.mx_formats.config.MXGemmKernelChoice"
MODE = "torchao.prototype.mx_formats.config.ScaleCalculationMode"


def mx_of_0_3(codes, scale, element, **more):
    """Flat scales; the shape is that of one code a byte."""
    return raw(
        MX,
        (4, 64),
        _data=codes,
        _scale_e8m0=scale,
        _elem_dtype=element,
        _block_size=32,
        _orig_dtype="bfloat16",
        **more,
    )


def mx_of_0_13(codes, element, *, pack_fp6=False, kwargs=None, choice="cublas"):
    return raw(
        MX,
        (4, 64),
        qdata=codes,
        _scale_e8m0=torch.arange(8, dtype=torch.uint8).reshape(4, 2).view(torch.float8_e8m0fnu),
        _elem_dtype=element,
        _block_size=32,
        _orig_dtype="bfloat16",
        _gemm_kernel_choice=member(CHOICE, choice),
        _pack_fp6=pack_fp6,
        act_quant_kwargs=kwargs,
    )


def pack_fp6(codes: torch.Tensor, block: int) -> torch.Tensor:
    """Code by code, as torchao's Triton kernel did it to a block a time."""
    rows = []
    for row in codes.reshape(-1, block).tolist():
        fours = [row[at : at + 4] for at in range(0, block, 4)]
        first = [(a >> 2) << 4 | b >> 2 for a, b, _, _ in fours]
        last = [(c >> 2) << 4 | d >> 2 for _, _, c, d in fours]
        low = [(a & 3) << 6 | (b & 3) << 4 | (c & 3) << 2 | d & 3 for a, b, c, d in fours]
        rows.append(first + last + low)
    return torch.tensor(rows, dtype=torch.uint8).reshape(codes.shape[0], -1)


def test_flat_scales_of_uint8_come_to_lie_in_rows():
    codes = torch.zeros(4, 64).to(torch.float8_e4m3fn)
    scale = torch.arange(8, dtype=torch.uint8)
    outcome = upgraded(mx_of_0_3(codes, scale, "float8_e4m3fn"))
    assert torch.equal(outcome.record.parts["scale"].read(), scale.reshape(4, 2))
    assert outcome.record.attributes["block_size"] == (1, 32)


def test_even_codes_of_fp4_move_to_the_low_nibble():
    codes = torch.arange(128, dtype=torch.uint8).reshape(4, 32)
    outcome = upgraded(mx_of_0_3(codes, torch.zeros(8, dtype=torch.uint8), "fp4_e2m1"))
    made = outcome.record.parts["qdata"].read()
    assert torch.equal(made & 15, codes >> 4)
    assert torch.equal(made >> 4, codes & 15)
    assert outcome.record.attributes["element"] == "float4_e2m1fn_x2"


@pytest.mark.parametrize("element", ["fp6_e2m3", "fp6_e3m2"])
def test_packed_fp6_becomes_one_code_a_byte(element):
    codes = torch.randint(0, 64, (4, 64), dtype=torch.uint8)
    packed = mx_of_0_13(pack_fp6(codes, 32), element, pack_fp6=True)
    assert torch.equal(upgraded(packed).record.parts["qdata"].read(), codes)


def test_fp6_that_was_not_packed_stays_as_it_is():
    codes = torch.randint(0, 64, (4, 64), dtype=torch.uint8)
    plain = mx_of_0_13(codes, "fp6_e2m3")
    assert torch.equal(upgraded(plain).record.parts["qdata"].read(), codes)


def test_bytes_that_are_no_blocks_of_packed_fp6_are_refused():
    codes = torch.zeros(4, 40, dtype=torch.uint8)
    with pytest.raises(FieldError, match="40 bytes are no blocks of 32 codes"):
        upgraded(mx_of_0_13(codes, "fp6_e2m3", pack_fp6=True))


def test_flat_scales_that_are_not_one_a_block_are_refused():
    codes = torch.zeros(4, 64).to(torch.float8_e4m3fn)
    with pytest.raises(FieldError, match="not one for each block of 32"):
        upgraded(mx_of_0_3(codes, torch.zeros(6, dtype=torch.uint8), "float8_e4m3fn"))


@pytest.mark.parametrize(("choice", "preference"), [("emulated", "emulated"), ("cublas", None)])
def test_the_kernel_and_the_activation_of_0_13_are_kept(choice, preference):
    kwargs = instance(
        MX_KWARGS,
        elem_dtype="float8_e4m3fn",
        block_size=32,
        scaling_mode=member(MODE, "even"),
        gemm_kernel_choice=member(CHOICE, choice),
        pack_fp6=False,
    )
    codes = torch.zeros(4, 64).to(torch.float8_e4m3fn)
    given = mx_of_0_13(codes, "float8_e4m3fn", kwargs=kwargs, choice=choice)
    kept = upgraded(given).record.attributes
    assert kept["activation"]["scale_mode"] == Symbol("aoserial.ScaleMode", "even")
    for hint in (kept["kernel"], kept["activation"]["kernel"]):
        assert (hint and hint["preference"].name) == preference


def test_the_activation_that_a_wrapper_of_0_12_held_becomes_the_weights():
    codes = torch.zeros(4, 64).to(torch.float8_e4m3fn)
    scale = torch.zeros(4, 2, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    choice = member(CHOICE, "emulated")
    weight = identify(mx_of_0_3(codes, scale, "float8_e4m3fn", _gemm_kernel_choice=choice))
    resolved = Upgrader().upgrade(weight, stop=("torchao.MXTensor", 1)).record
    settings = FrozenMap(activation_dtype="float8_e5m2", block_size=32, scale=None)
    whole = with_mx_activation(resolved, Nested("pickle.builtins.dict", 1, settings))
    activation = Upgrader().upgrade(whole).record.attributes["activation"]
    assert activation["dtype"] == "float8_e5m2"
    assert activation["granularity"]["group_size"] == 32


def nvfp4(release: str, **more):
    named = {
        "0.12": ("_data", "_scale_e4m3", "_block_size", "_orig_dtype"),
        "0.13": ("qdata", "_scale_e4m3", "_block_size", "_orig_dtype"),
        "0.15": ("qdata", "scale", "block_size", "_orig_dtype"),
        "0.16": ("qdata", "scale", "block_size", "orig_dtype"),
    }
    codes = torch.arange(128, dtype=torch.uint8).reshape(4, 32)
    scale = torch.ones(4, 4).to(torch.float8_e4m3fn)
    values = dict(zip(named[release], (codes, scale, 16, "bfloat16"), strict=True))
    return raw(NVFP4, (4, 64), use_triton_kernel=False, **values | more)


def test_scales_of_nvfp4_are_multiplied_as_the_release_did_where_the_fields_tell():
    whole = torch.tensor(2.0)
    old = {
        "0.12": {"mm_config": member(f"{NVFP4.rpartition('.')[0]}.NVFP4MMConfig", "weight_only")},
        "0.13": {"act_quant_kwargs": None, "_act_per_tensor_scale": None},
    }
    for release, more in old.items():
        outcome = upgraded(
            nvfp4(release, _is_swizzled_scales=False, _per_tensor_scale=whole, **more)
        )
        assert outcome.record.attributes["scale_product_dtype"] == "bfloat16"
        assert outcome.assumed == ()
    outcome = upgraded(nvfp4("0.15", _is_swizzled_scales=False, per_tensor_scale=whole))
    assert outcome.record.attributes["scale_product_dtype"] == "bfloat16"
    outcome = upgraded(nvfp4("0.16", is_swizzled_scales=False, per_tensor_scale=whole))
    assert outcome.record.attributes["scale_product_dtype"] == "float32"
    assert outcome.assumed == ("scale_product_dtype=float32",)


@pytest.mark.parametrize("config", ["dynamic", "weight_only"])
def test_mm_config_of_0_12_says_whether_the_activation_is_quantized(config):
    choice = member(f"{NVFP4.rpartition('.')[0]}.NVFP4MMConfig", config)
    given = nvfp4("0.12", _is_swizzled_scales=False, _per_tensor_scale=None, mm_config=choice)
    activation = upgraded(given).record.attributes["activation"]
    assert (activation is None) == (config == "weight_only")


def test_a_weight_that_does_not_say_whether_its_scales_are_swizzled_is_refused():
    with pytest.raises(MissingFieldError, match="_is_swizzled_scales"):
        upgraded(nvfp4("0.15"))


def test_a_transposed_weight_with_flat_scales_is_refused():
    codes = torch.zeros(4, 64).to(torch.float8_e4m3fn)
    scale = torch.zeros(8, dtype=torch.uint8)
    turned = mx_of_0_3(codes, scale, "float8_e4m3fn", **{"(stride)": (1, 4)})
    with pytest.raises(UnsupportedTensorError, match="transposed"):
        upgraded(turned)


def test_scales_of_a_transposed_weight_are_refused_not_read_in_another_order():
    codes = torch.zeros(128, 64).to(torch.float8_e4m3fn)
    fields = {
        "elem_dtype": "float8_e4m3fn",
        "block_size": 32,
        "orig_dtype": "bfloat16",
        "kernel_preference": None,
        "act_quant_kwargs": None,
    }
    rows = torch.zeros(4, 64, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    tiles = torch.zeros(16, 32, dtype=torch.uint8).view(torch.float8_e8m0fnu)
    for scale, swizzled in ((rows, False), (tiles, True)):
        turned = raw(MX, (128, 64), qdata=codes, scale=scale, **fields, is_swizzled_scales=swizzled)
        with pytest.raises(AoserialError, match="shape|tiles"):
            upgraded(turned)


def test_strides_are_in_a_raw_record_where_they_are_not_those_of_rows():
    def wrapper(shape, stride):
        return WrapperSubclass(
            cls=Name("acme", "T"),
            dtype="float32",
            shape=shape,
            stride=stride,
            storage_offset=0,
            layout="strided",
            device=TorchDevice("cpu"),
            requires_grad=False,
        )

    turned = {"a": ((2, 3), (3, 1)), "b": ((2, 3), (1, 2)), "c": ((2, 1), (1, 1)), "d": ((2,), ())}
    found = decode_pickle([(name, wrapper(*given)) for name, given in turned.items()])
    held = {name for group in found.catalog.groups for name in group.members
            if "(stride)" in group.template.attributes}  # fmt: skip
    assert held == {"b", "d"}
