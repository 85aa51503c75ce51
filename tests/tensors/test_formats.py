"""What is particular to Int4Tensor, IntxTensor, MXTensor and NVFP4Tensor."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.tensors import same_bytes
from support.weights import FP4, K, N, dynamic, make_full_nvfp4

from aoserial.errors import (
    FieldError,
    OptionError,
    QuantizationError,
    UnsupportedOperationError,
)
from aoserial.kernels import ELEMENTS, DeviceInfo, Reference, dequantize, linear
from aoserial.tensors import (
    Int4Tensor,
    IntxTensor,
    MXTensor,
    NVFP4Tensor,
    ScaleMode,
    ScaleOp,
    ZeroDomain,
    dump,
    from_record,
    to_record,
)
from aoserial.tensors.hints import AnyDtype, Hint, hint
from aoserial.tensors.live import load

DOMAINS = ["none", "int", "float", "offset"]
CPU = DeviceInfo(type="cpu")


# -- making them --------------------------------------------------------------------------------


def test_an_enum_may_be_given_by_name() -> None:
    w = torch.randn(4, 8)
    assert Int4Tensor.from_float(w, zero_domain="int").zero_domain is ZeroDomain.int
    assert Int4Tensor.from_float(w, zero_domain=ZeroDomain.int).zero_domain is ZeroDomain.int
    with pytest.raises(OptionError, match="zero_domain is 'middle', expected one of 'none', 'int'"):
        Int4Tensor.from_float(w, zero_domain="middle")
    with pytest.raises(OptionError, match="scale_mode is 'nearest'"):
        MXTensor.from_float(w, scale_mode="nearest")


@pytest.mark.parametrize("element", [*ELEMENTS, torch.float8_e5m2, FP4], ids=str)
def test_an_element_may_be_a_dtype_or_its_name(element: Any) -> None:
    weight = MXTensor.from_float(torch.randn(4, 64), element=element)
    name = str(element).removeprefix("torch.")
    assert weight.element == getattr(torch, name, name)
    assert isinstance(weight.element, str) == name.startswith("float6")
    assert weight.codes_per_byte == (2 if name.startswith("float4") else 1)
    assert weight.block_size == (1, 32)
    assert from_record(to_record(weight)).element == weight.element


def test_another_element_is_refused() -> None:
    with pytest.raises(OptionError, match=r"element is torch\.int8, expected one of float8_e4m3fn"):
        MXTensor.from_float(torch.randn(4, 8), element=torch.int8)


def test_one_of_two_ways_to_say_a_granularity() -> None:
    w = torch.randn(4, 8)
    assert IntxTensor.from_float(w, bit_width=2).block_size == (1, 8)
    assert IntxTensor.from_float(w, bit_width=2, group_size=4).block_size == (1, 4)
    assert IntxTensor.from_float(w, bit_width=2, granularity=(2, 4)).block_size == (2, 4)
    with pytest.raises(OptionError, match="one of the two"):
        IntxTensor.from_float(w, bit_width=2, group_size=4, granularity=(2, 4))


def test_the_scale_of_a_whole_tensor() -> None:
    w = torch.randn(3, 4, 32, dtype=torch.bfloat16)
    assert NVFP4Tensor.from_float(w).per_tensor_scale is None
    auto = NVFP4Tensor.from_float(w, per_tensor_scale="auto").per_tensor_scale
    assert torch.equal(auto.flatten(), w.float().abs().amax((1, 2)) / 2688)
    assert NVFP4Tensor.from_float(w[0], per_tensor_scale="auto").per_tensor_scale.shape == ()
    given_scale = NVFP4Tensor.from_float(w, per_tensor_scale=torch.tensor(0.5).bfloat16())
    assert given_scale.per_tensor_scale.dtype == torch.float32
    with pytest.raises(OptionError, match="per_tensor_scale is 'max', expected 'auto'"):
        NVFP4Tensor.from_float(w, per_tensor_scale="max")
    with pytest.raises(QuantizationError, match="shape"):
        NVFP4Tensor.from_float(w, per_tensor_scale=torch.ones(3))


@pytest.mark.parametrize(
    "make",
    [Int4Tensor.from_float, NVFP4Tensor.from_float, lambda w: MXTensor.from_float(w, element=FP4)],
    ids=["int4", "nvfp4", "mxfp4"],
)
def test_an_odd_number_of_columns_is_refused_where_two_share_a_byte(make: Any) -> None:
    with pytest.raises(QuantizationError, match="must be even, not 7"):
        make(torch.randn(4, 7))


def test_a_last_block_may_be_ragged() -> None:
    w = torch.randn(4, 50)
    for weight in (
        Int4Tensor.from_float(w, group_size=32),
        IntxTensor.from_float(w, bit_width=4, group_size=32),
        MXTensor.from_float(w, element=FP4),
        MXTensor.from_float(w[:, :49]),
    ):
        assert weight.scale.shape == (4, 2)
        assert weight.dequantize().shape == weight.shape
    assert NVFP4Tensor.from_float(w).scale.shape == (4, 4)


def test_constructors_work_out_the_shape() -> None:
    w = torch.randn(2, 4, 32, dtype=torch.bfloat16)
    for made in (
        Int4Tensor.from_float(w),
        MXTensor.from_float(w, element=FP4),
        MXTensor.from_float(w),
        NVFP4Tensor.from_float(w),
    ):
        again = type(made)(
            *(getattr(made, name) for name in made.tensor_data_names),
            *(getattr(made, name) for name in made.tensor_attribute_names),
        )
        assert again.shape == made.shape == (2, 4, 32)


@pytest.mark.parametrize("domain", DOMAINS)
def test_a_zero_point_is_there_exactly_where_its_domain_asks_for_it(domain: str) -> None:
    made = Int4Tensor.from_float(torch.randn(4, 8), zero_domain=domain)
    assert (made.zero_point is None) == (domain == "none")
    zero_point = torch.zeros(4, 1) if domain == "none" else None
    with pytest.raises(FieldError, match="zero_point"):
        Int4Tensor(made.qdata, made.scale, made.block_size, made.zero_domain, zero_point)


def test_parts_that_contradict_the_element_are_refused_when_read() -> None:
    made = MXTensor.from_float(torch.randn(4, 8))
    wrong = MXTensor(made.qdata, made.scale, torch.float8_e5m2, 1, made.block_size)
    with pytest.raises(FieldError, match="does not hold elements of float8_e5m2"):
        wrong.dequantize()
    packed = MXTensor.from_float(torch.randn(4, 8), element=FP4)
    loose = MXTensor(packed.qdata, packed.scale, FP4, 1, (1, 4))
    with pytest.raises(
        FieldError, match="codes_per_byte is 1, but of float4_e2m1fn_x2 a byte holds 2"
    ):
        loose.dequantize()


# -- dtypes that torch lacks --------------------------------------------------------------------


def test_a_dtype_without_a_torch_dtype_keeps_its_name() -> None:
    assert hint(AnyDtype, lambda cls: None) == Hint(text="dtype")
    assert hint(AnyDtype | None, lambda cls: None).text == "dtype?"
    for name, live in (("float6_e2m3fn", "float6_e2m3fn"), ("bfloat16", torch.bfloat16)):
        assert load(name, Hint(text="dtype")) == live
        assert dump(live) == name


def test_an_activation_may_have_such_a_dtype() -> None:
    activation = dynamic("float6_e2m3fn", 32, scale_mode=ScaleMode.floor)
    assert load(dump(activation), Hint()) == activation
    spec = activation.spec()
    assert (spec.dtype, spec.scale_mode, spec.tensor_scale) == ("float6_e2m3fn", "floor", False)


# -- products -----------------------------------------------------------------------------------


@pytest.mark.parametrize("bias", [None, torch.randn(N, dtype=torch.bfloat16)], ids=["", "bias"])
def test_the_reference_layer_is_dequantize_then_linear(bias: torch.Tensor | None) -> None:
    """MX, NVFP4 and intx with the bias inside the product, as torchao has it; int4 behind it."""
    w, x = torch.randn(N, K, dtype=torch.bfloat16), torch.randn(3, K, dtype=torch.bfloat16)
    for weight in (
        IntxTensor.from_float(w, bit_width=4),
        MXTensor.from_float(w, element="float6_e2m3fn"),
        NVFP4Tensor.from_float(w, per_tensor_scale="auto"),
    ):
        expected = F.linear(x, weight.dequantize(), bias)
        found = linear(x, weight.kernel_weight(), bias, backend="reference")
        assert same_bytes(found, expected)
    weight = Int4Tensor.from_float(w)
    product = F.linear(x, weight.dequantize())
    found = linear(x, weight.kernel_weight(), bias, backend="reference")
    assert same_bytes(found, product if bias is None else product + bias)


def test_what_the_reference_does_not_honour_it_says() -> None:
    weight = make_full_nvfp4()
    shown = weight.kernel_weight()
    assert Reference().supports(shown.spec, CPU) is None
    without = replace(shown.spec, activation=None)
    refusal = Reference().supports(without, CPU) or ""
    assert "act_per_tensor_scale, but does not say how" in refusal
    stack = NVFP4Tensor.from_float(torch.randn(2, N, K))
    with pytest.raises(UnsupportedOperationError, match="two dimensions, not 3"):
        F.linear(torch.randn(2, K), stack)


def test_kernels_see_all_that_codes_mean() -> None:
    w = torch.randn(N, K)
    spec = Int4Tensor.from_float(w, zero_domain="offset").kernel_weight().spec
    assert (spec.kind, spec.zero_domain) == ("int4", "offset")
    assert spec.parts == ("qdata", "scale", "zero_point")
    spec = IntxTensor.from_float(w, bit_width=5).kernel_weight().spec
    assert (spec.kind, spec.bit_width, spec.zero_domain) == ("intx", 5, "none")
    spec = MXTensor.from_float(w, element=FP4).kernel_weight().spec
    assert (spec.kind, spec.element, spec.data_dtype) == ("mx", "float4_e2m1fn_x2", "uint8")
    shown = make_full_nvfp4(torch.bfloat16).kernel_weight()
    assert (shown.spec.scale_op, shown.spec.scale_dtype) == ("divide", "bfloat16")
    assert set(shown.parts) == set(shown.spec.parts)
    assert dequantize(shown).dtype == torch.float32


def test_a_copy_in_another_dtype_computes_in_it() -> None:
    """The parts stay; what an intx or MX weight stands for is computed in its logical dtype."""
    weight = IntxTensor.from_float(torch.randn(N, K), bit_width=4).to(torch.bfloat16)
    codes = weight.qdata.to(torch.bfloat16)
    assert torch.equal(weight.dequantize(), (codes * weight.scale).to(torch.bfloat16))
    assert weight.scale.dtype == torch.float32
    assert ScaleOp("divide") is ScaleOp.divide
