"""Weights for tests: to quantize, and quantized ones with everything their type can hold."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aoserial.tensors import (
    Activation,
    ActivationKind,
    Granularity,
    GranularityKind,
    Int4Tensor,
    IntxTensor,
    Mapping,
    MXTensor,
    NVFP4Tensor,
    ScaleMode,
    ScaleOp,
    VersionedTensor,
)

N, K = 8, 16
FP4 = torch.float4_e2m1fn_x2


def dynamic(dtype: torch.dtype | str, group_size: int | None = None, **settings) -> Activation:
    """An activation quantized by token, or in groups along K."""
    kind = GranularityKind.token if group_size is None else GranularityKind.group
    return Activation(
        kind=ActivationKind.dynamic,
        dtype=dtype,
        granularity=Granularity(kind=kind, group_size=group_size),
        **settings,
    )


def of_many_sizes(dtype: torch.dtype) -> list[torch.Tensor]:
    """Of several sizes, with rows of different ones, a block of zeros and an outlier."""
    made = []
    for size in (1.0, 1e-3, 1e4, 1e-30):
        w = torch.randn(16, 128) * torch.rand(16, 1) * size
        w[3, :64] = 0
        w[5, 7] *= 100
        made.append(w.to(dtype))
    return made


def make_full_int4() -> VersionedTensor:
    plain = Int4Tensor.from_float(torch.randn(N, K), group_size=4, zero_domain="float")
    return Int4Tensor(
        plain.qdata,
        plain.scale,
        plain.block_size,
        plain.zero_domain,
        plain.zero_point,
        act_pre_scale=torch.rand(K),
        activation=dynamic(torch.float8_e4m3fn),
        dtype=torch.float32,
    )


def make_act_order_int4() -> VersionedTensor:
    """Of which no columns can be cut off."""
    plain = Int4Tensor.from_float(torch.randn(N, K), group_size=4, zero_domain="int")
    return Int4Tensor(
        plain.qdata,
        plain.scale,
        plain.block_size,
        plain.zero_domain,
        plain.zero_point,
        group_index=torch.randperm(K) // 4,
        dtype=torch.float32,
    )


def make_full_intx() -> VersionedTensor:
    plain = IntxTensor.from_float(torch.randn(N, K), bit_width=5, zero_domain="offset")
    return IntxTensor(
        plain.qdata,
        plain.scale,
        plain.bit_width,
        plain.block_size,
        plain.zero_domain,
        plain.zero_point,
        act_pre_scale=torch.rand(K),
        activation=dynamic(torch.int8, mapping=Mapping.asymmetric),
        dtype=torch.float32,
    )


def make_mxfp6() -> VersionedTensor:
    return MXTensor.from_float(torch.randn(N, K), element="float6_e3m2fn", block_size=4)


def make_full_mxfp4() -> VersionedTensor:
    plain = MXTensor.from_float(torch.randn(N, K), element=FP4, block_size=4)
    return MXTensor(
        plain.qdata,
        plain.scale,
        plain.element,
        plain.codes_per_byte,
        plain.block_size,
        activation=dynamic(FP4, 4, scale_mode=ScaleMode.rceil),
        dtype=torch.float32,
    )


def make_full_nvfp4(product: torch.dtype = torch.float32) -> VersionedTensor:
    """Scales multiplied in float32, as inductor leaves out casts to bfloat16 and back."""
    plain = NVFP4Tensor.from_float(torch.randn(N, K))
    return NVFP4Tensor(
        plain.qdata,
        plain.scale,
        plain.block_size,
        per_tensor_scale=torch.tensor(2.5),
        act_per_tensor_scale=torch.tensor(0.01),
        per_tensor_scale_op=ScaleOp.divide,
        scale_product_dtype=product,
        activation=dynamic(FP4, 16),
        dtype=torch.float32,
    )


# what the conformance suite goes over beside what `from_float` makes
FULL: dict[str, Callable[[], VersionedTensor]] = {
    "int4-full": make_full_int4,
    "intx-full": make_full_intx,
    "mx-fp6": make_mxfp6,
    "mx-fp4-full": make_full_mxfp4,
    "nvfp4-full": make_full_nvfp4,
}
