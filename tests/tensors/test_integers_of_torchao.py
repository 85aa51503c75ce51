"""Integer codes against torchao 0.18's own quantizers: the same codes, scales and zero points.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings

import pytest
import torch
from support.tensors import same_bytes
from support.weights import of_many_sizes

from aoserial.kernels.arithmetic import unpack_nibbles
from aoserial.tensors import Int4Tensor, IntxTensor

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    torchao = pytest.importorskip(
        "torchao", reason="torchao is NOT installed: quantizers are not compared with the real ones"
    )
    from torchao.quantization import IntxUnpackedToInt8Tensor
    from torchao.quantization.quant_primitives import (
        MappingType,
        _choose_qparams_affine_tinygemm,
        _dequantize_affine_tinygemm,
        _quantize_affine_tinygemm,
        choose_qparams_affine,
        quantize_affine,
    )

pytestmark = [
    pytest.mark.skipif(
        not torchao.__version__.startswith("0.18"), reason=f"torchao is {torchao.__version__}"
    ),
    pytest.mark.filterwarnings("ignore"),
]

MAPPINGS = {"none": MappingType.SYMMETRIC, "int": MappingType.ASYMMETRIC}
DTYPES = [torch.float32, torch.bfloat16]


@pytest.mark.parametrize("domain", MAPPINGS)
@pytest.mark.parametrize("bits", range(1, 9))
def test_intx_of_float32_has_their_codes_scales_and_zero_points(bits: int, domain: str) -> None:
    for w in of_many_sizes(torch.float32):
        their = IntxUnpackedToInt8Tensor.from_hp(
            w, (1, 32), getattr(torch, f"int{bits}"), mapping_type=MAPPINGS[domain]
        )
        our = IntxTensor.from_float(w, bit_width=bits, group_size=32, zero_domain=domain)
        assert same_bytes(our.qdata, their.qdata)
        assert same_bytes(our.scale, their.scale)
        if domain == "int":
            assert same_bytes(our.zero_point, their.zero_point)
        assert same_bytes(our.dequantize(), their.dequantize())


@pytest.mark.parametrize("domain", MAPPINGS)
@pytest.mark.parametrize("bits", [4, 8])
def test_of_bfloat16_their_codes_are_the_nearest_but_for_some(bits: int, domain: str) -> None:
    """They compute in bfloat16: of 4 bits about 1 % are the second nearest, of 8 more than 10 %."""
    w = torch.randn(64, 256, dtype=torch.bfloat16)
    their = IntxUnpackedToInt8Tensor.from_hp(
        w, (1, 32), getattr(torch, f"int{bits}"), mapping_type=MAPPINGS[domain]
    )
    our = IntxTensor.from_float(w, bit_width=bits, group_size=32, zero_domain=domain)
    if domain == "none":
        assert same_bytes(our.scale, their.scale)
    torch.testing.assert_close(our.scale, their.scale, rtol=2**-7, atol=0)
    assert our.scale.dtype == their.scale.dtype
    assert farther_than_half_a_step(our, w) == 0
    assert 0 < farther_than_half_a_step(their, w) < 0.5


def farther_than_half_a_step(weight: torch.Tensor, w: torch.Tensor) -> float:
    """The share of codes that are not the nearest, apart from those at the ends of the range."""
    scale = weight.scale.float().repeat_interleave(32, 1)
    zero_point = 0 if weight.zero_point is None else weight.zero_point.repeat_interleave(32, 1)
    inside = (weight.qdata > weight.qdata.min()) & (weight.qdata < weight.qdata.max())
    distance = (weight.qdata.float() - zero_point - w.float() / scale).abs()
    return (distance > 0.5 + 1e-4)[inside].float().mean().item()


@pytest.mark.parametrize("domain", MAPPINGS)
def test_int4_has_their_codes_scales_and_zero_points(domain: str) -> None:
    for w in of_many_sizes(torch.float32):
        scale, zero_point = choose_qparams_affine(
            w, MAPPINGS[domain], (1, 32), torch.int32, 0, 15, zero_point_dtype=torch.int8
        )
        codes = quantize_affine(w, (1, 32), scale, zero_point, torch.uint8, 0, 15)
        our = Int4Tensor.from_float(w, group_size=32, zero_domain=domain)
        assert torch.equal(unpack_nibbles(our.qdata), codes)
        assert same_bytes(our.scale, scale.reshape(our.scale.shape))
        if domain == "int":
            assert same_bytes(our.zero_point, zero_point.reshape(our.scale.shape))


def test_int4_with_a_zero_point_in_weights_is_their_tinygemm() -> None:
    for w in of_many_sizes(torch.float32):
        scale, zero_point = _choose_qparams_affine_tinygemm(
            w, MappingType.ASYMMETRIC, (1, 32), torch.int32, 0, 15
        )
        codes = _quantize_affine_tinygemm(w, (1, 32), scale, zero_point, torch.uint8, 0, 15)
        our = Int4Tensor.from_float(w, group_size=32, zero_domain="float")
        assert torch.equal(unpack_nibbles(our.qdata), codes)
        assert same_bytes(our.scale, scale.reshape(our.scale.shape))
        assert same_bytes(our.zero_point, zero_point.reshape(our.scale.shape))
        their = _dequantize_affine_tinygemm(
            codes, (1, 32), scale, zero_point, torch.uint8, 0, 15, output_dtype=torch.float32
        )
        assert same_bytes(our.dequantize(), their)


@pytest.mark.parametrize("dtype", [*DTYPES, torch.float16], ids=str)
def test_intx_with_a_zero_point_in_weights_is_their_tinygemm(dtype: torch.dtype) -> None:
    codes = torch.randint(-8, 8, (4, 64), dtype=torch.int8)
    scale, zero_point = torch.rand(4, 2), torch.randn(4, 2)
    for part in DTYPES:
        our = IntxTensor(
            codes, scale.to(part), 4, (1, 32), "float", zero_point.to(part), dtype=dtype
        )
        their = _dequantize_affine_tinygemm(
            codes,
            (1, 32),
            scale.to(part),
            zero_point.to(part),
            torch.int8,
            -8,
            7,
            output_dtype=dtype,
        )
        assert same_bytes(our.dequantize(), their)
