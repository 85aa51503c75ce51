"""MX and NVFP4 against torchao 0.18's own quantizers: the same codes and scales.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from support.tensors import same_bytes
from support.weights import dynamic, of_many_sizes

from aoserial.kernels import ELEMENTS
from aoserial.kernels.arithmetic import decode, e8m0
from aoserial.tensors import MXTensor, NVFP4Tensor, ScaleMode

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    torchao = pytest.importorskip(
        "torchao", reason="torchao is NOT installed: quantizers are not compared with the real ones"
    )
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.kernels import (
        f4_unpacked_to_f32,
        f6_e2m3_unpacked_to_f32,
        f6_e3m2_unpacked_to_f32,
    )
    from torchao.prototype.mx_formats.mx_tensor import (
        MXTensor as TheirMX,
        QuantizeTensorToMXKwargs,
        get_fp_scale,
        to_dtype,
    )
    from torchao.prototype.mx_formats.nvfp4_tensor import (
        NVFP4Tensor as TheirNVFP4,
        per_tensor_amax_to_scale,
    )

pytestmark = [
    pytest.mark.skipif(
        not torchao.__version__.startswith("0.18"), reason=f"torchao is {torchao.__version__}"
    ),
    pytest.mark.filterwarnings("ignore"),
]

THEIR_ELEMENTS = {"float6_e2m3fn": "fp6_e2m3", "float6_e3m2fn": "fp6_e3m2"}
DTYPES = [torch.float32, torch.bfloat16]


def theirs(element: str) -> Any:
    return THEIR_ELEMENTS.get(element) or getattr(torch, element)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mode", ["floor", "ceil", "even", "rceil"])
@pytest.mark.parametrize("element", ELEMENTS)
def test_mx_has_their_codes_and_scales(element: str, mode: str, dtype: torch.dtype) -> None:
    for w in of_many_sizes(dtype):
        their = TheirMX.to_mx(w, theirs(element), 32, ScaleCalculationMode(mode))
        our = MXTensor.from_float(w, element=element, scale_mode=mode)
        assert same_bytes(our.qdata, their.qdata)
        assert same_bytes(our.scale, their.scale.view(torch.uint8))
        assert same_bytes(our.dequantize(), their.dequantize())


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_code_and_every_scale_dequantize_as_theirs(element: str) -> None:
    """All codes of the format by all 256 scales, in every dtype."""
    form = ELEMENTS[element]
    codes = torch.arange(256).to(torch.uint8)
    if form.codes_per_byte == 1 and form.dtype is None:
        codes = codes[: 2 * len(form.magnitudes)]
    elif form.dtype is not None:
        codes = codes.view(form.dtype)
    qdata = codes.repeat(256, 1)
    scale = torch.arange(256).to(torch.uint8)[:, None]
    columns = codes.numel() * form.codes_per_byte
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        our = MXTensor(qdata, scale, element, form.codes_per_byte, (1, columns), dtype=dtype)
        their = to_dtype(qdata, scale.view(torch.float8_e8m0fnu), theirs(element), columns, dtype)
        found = our.dequantize()
        assert torch.equal(found.isnan(), their.isnan())
        assert same_bytes(found.nan_to_num(7.0), their.nan_to_num(7.0))


def test_the_tables_are_theirs() -> None:
    for name, decoded in (
        ("float6_e2m3fn", f6_e2m3_unpacked_to_f32),
        ("float6_e3m2fn", f6_e3m2_unpacked_to_f32),
        ("float4_e2m1fn_x2", f4_unpacked_to_f32),
    ):
        codes = torch.arange(2 * len(ELEMENTS[name].magnitudes), dtype=torch.uint8)
        assert same_bytes(decode(codes, ELEMENTS[name]), decoded(codes))
    scale = torch.arange(255).to(torch.uint8)
    assert same_bytes(e8m0(scale), get_fp_scale(scale.view(torch.float8_e8m0fnu)))


def test_where_mx_differs_from_theirs() -> None:
    """Their codes of blocks at the least scale mean half of the value, or nothing."""
    w = torch.tensor([[2.0**-126, 2.0**-128] * 16])
    for mode, factor in (("floor", 0.5), ("rceil", 0.0)):
        their = TheirMX.to_mx(w, torch.float8_e4m3fn, 32, ScaleCalculationMode(mode))
        our = MXTensor.from_float(w, scale_mode=mode)
        assert same_bytes(our.scale, their.scale.view(torch.uint8))
        assert torch.equal(our.dequantize(), w)
        assert torch.equal(their.dequantize(), w * factor)


def test_where_rceil_differs_from_theirs() -> None:
    """A float32 logarithm takes what is just above a power of two for that power."""
    w = torch.full((1, 32), 448.0 * 2**20).nextafter(torch.tensor(torch.inf))
    their = TheirMX.to_mx(w, torch.float8_e4m3fn, 32, ScaleCalculationMode.RCEIL)
    our = MXTensor.from_float(w, scale_mode="rceil")
    assert our.scale.item() == their.scale.view(torch.uint8).item() + 1


@pytest.mark.parametrize("element", ["float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"])
def test_an_mx_layer_computes_what_their_emulation_does(element: str) -> None:
    """They multiply in bfloat16, which holds all these values; sums are rounded elsewhere."""
    w, bias = torch.randn(24, 64, dtype=torch.bfloat16), torch.randn(24, dtype=torch.bfloat16)
    x = torch.randn(5, 64, dtype=torch.bfloat16)
    kwargs = QuantizeTensorToMXKwargs(
        elem_dtype=theirs(element), scaling_mode=ScaleCalculationMode.EVEN
    )
    their = TheirMX.to_mx(w, theirs(element), 32, act_quant_kwargs=kwargs)
    plain = MXTensor.from_float(w, element=element)
    our = MXTensor(
        plain.qdata,
        plain.scale,
        plain.element,
        plain.codes_per_byte,
        plain.block_size,
        activation=dynamic(plain.element, 32, scale_mode=ScaleMode.even),
        dtype=w.dtype,
    )
    torch.testing.assert_close(
        F.linear(x, our, bias), F.linear(x, their, bias), rtol=2**-7, atol=1e-2
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("whole", [None, "auto"])
def test_nvfp4_has_their_codes_and_scales(whole: Any, dtype: torch.dtype) -> None:
    for w in of_many_sizes(dtype):
        scale = None if whole is None else per_tensor_amax_to_scale(w.abs().max())
        their = TheirNVFP4.to_nvfp4(w, per_tensor_scale=scale)
        our = NVFP4Tensor.from_float(w, per_tensor_scale=whole)
        assert same_bytes(our.qdata, their.qdata)
        assert same_bytes(our.scale, their.scale)
        assert same_bytes(our.dequantize(), their.dequantize())
        if scale is not None:
            assert same_bytes(our.per_tensor_scale, scale)


def test_a_stack_has_their_codes_and_scales() -> None:
    w = (
        torch.randn(3, 16, 64, dtype=torch.bfloat16)
        * torch.tensor([1.0, 30.0, 0.01])[:, None, None]
    )
    w = w.to(torch.bfloat16)
    scale = per_tensor_amax_to_scale(w.abs().amax((1, 2), keepdim=True))
    their = TheirNVFP4.to_nvfp4(w, per_tensor_scale=scale)
    our = NVFP4Tensor.from_float(w, per_tensor_scale="auto")
    for index in (slice(None), 2):
        assert same_bytes(our[index].qdata, their.qdata[index])
        assert same_bytes(our[index].scale, their.scale[index])
        assert same_bytes(our[index].dequantize(), their.dequantize()[index])
    assert same_bytes(our.per_tensor_scale, their.per_tensor_scale)
