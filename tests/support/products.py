"""Weights of every kind, and how far a fast product may be from the exact one."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aoserial import Float8Tensor, Int4Tensor, Int8Tensor, IntxTensor, MXTensor, NVFP4Tensor
from aoserial.kernels import Weight, dequantize
from aoserial.kernels.arithmetic import expand
from aoserial.kernels.cpu.native import kernel as native, library
from aoserial.kernels.cpu.native.products import Products
from aoserial.kernels.reference import activated

FP4 = torch.float4_e2m1fn_x2


def int4_maker(domain: str, size: int) -> Callable[[torch.Tensor], Weight]:
    """Of int4 weights in groups of `size`."""
    return lambda w: Int4Tensor.from_float(w, group_size=size, zero_domain=domain).kernel_weight()


MAKERS: dict[str, Callable[[torch.Tensor], Weight]] = {
    "float8 tensor": lambda w: Float8Tensor.from_float(w, granularity="tensor").kernel_weight(),
    "float8 row": lambda w: Float8Tensor.from_float(w).kernel_weight(),
    "float8 block": lambda w: Float8Tensor.from_float(w, granularity=(16, 32)).kernel_weight(),
    "float8 e5m2": lambda w: Float8Tensor.from_float(w, dtype=torch.float8_e5m2).kernel_weight(),
    "float8 fnuz": lambda w: Float8Tensor.from_float(
        w, dtype=torch.float8_e4m3fnuz
    ).kernel_weight(),
    "float8 e5m2fnuz": lambda w: Float8Tensor.from_float(
        w, dtype=torch.float8_e5m2fnuz
    ).kernel_weight(),
    "int8 row": lambda w: Int8Tensor.from_float(w).kernel_weight(),
    "int8 group": lambda w: Int8Tensor.from_float(w, granularity=(1, 32)).kernel_weight(),
    **{
        f"int4 {domain} {size}": int4_maker(domain, size)
        for domain in ("none", "int", "float", "offset")
        for size in (32, 64)
    },
    **{
        f"intx {bits} {domain}": lambda w, bits=bits, domain=domain: IntxTensor.from_float(
            w, bit_width=bits, group_size=32, zero_domain=domain
        ).kernel_weight()
        for bits, domain in ((1, "none"), (3, "int"), (4, "float"), (8, "offset"))
    },
    **{
        f"mx {element}": lambda w, element=element: MXTensor.from_float(
            w, element=element
        ).kernel_weight()
        for element in (
            torch.float8_e4m3fn,
            torch.float8_e5m2,
            "float6_e2m3fn",
            "float6_e3m2fn",
            FP4,
        )
    },
    "nvfp4": lambda w: NVFP4Tensor.from_float(w).kernel_weight(),
}


def check(found: torch.Tensor, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None) -> None:
    """Asserts the backend's bound on each element; see `docs/kernels.md`."""
    met = activated(x, weight)[0]
    exact = met.to(torch.float64)
    w = dequantize(weight, torch.float64)
    y = exact @ w.t()
    terms = exact.abs() @ magnitudes(weight).t()
    if bias is not None:
        y, terms = y + bias, terms + bias.abs()
    assert found.dtype == x.dtype
    assert found.shape == y.shape
    unit = torch.finfo(x.dtype).eps / 2
    adding = 2.0**-53 if met.dtype == torch.float64 else 2.0**-24
    most = (3 * unit + (x.shape[-1] + 8) * adding) * terms
    assert ((found.to(torch.float64) - y).abs() <= most).all()


def native_products(weight: Weight, *, in_integers: bool = False) -> Products:
    """Those of the compiled code, which has to take the weight."""
    added = native.operands(weight)
    assert added is not None, "the compiled code takes it"
    held = Weight(spec=weight.spec, parts={**weight.parts, **added})
    return native.products_of(held, in_integers=in_integers)


def one_hot_products(weight: Weight, *, in_integers: bool = False) -> torch.Tensor:
    """[N, K]: each of the weight's elements by itself, by the compiled code."""
    products = native_products(weight, in_integers=in_integers)
    rows = torch.eye(weight.spec.shape[1]).split(1 if in_integers else 32)
    return torch.cat([products.of_numbers(library.LIBRARY, x) for x in rows]).t()


def magnitudes(weight: Weight) -> torch.Tensor:
    """What each weight is the sum of, in magnitude, [N, K] in float64."""
    spec, parts = weight.spec, weight.parts
    w = dequantize(weight, torch.float64).abs()
    if spec.kind not in ("int4", "intx") or spec.zero_domain == "none":
        return w
    index = parts.get("group_index")
    zero = expand(parts["zero_point"].to(torch.float64), spec.block_size, spec.shape, index).abs()
    scale = expand(parts["scale"].to(torch.float64), spec.block_size, spec.shape, index)
    if spec.zero_domain == "int":
        return w + (8 + zero) * scale
    return w + zero + 8 * scale
