"""What aoserial promises to read for ever of its own types; goldens/ has what releases wrote."""

from __future__ import annotations

import torch
from support import flat, prototypes, weights
from torch import nn

from aoserial import (
    Activation,
    Float8Tensor,
    Granularity,
    Int4Tensor,
    Int8Tensor,
    IntxTensor,
    KernelHint,
    MatmulHint,
    MXTensor,
    NVFP4Tensor,
    VersionedTensor,
)
from aoserial.golden import golden_case
from aoserial.tensors import ActivationKind, GranularityKind

N, K = 8, 16
Tensors = dict[str, torch.Tensor]


def random(*shape: int) -> torch.Tensor:
    return torch.randn(shape or (N, K))


def named(*tensors: torch.Tensor) -> Tensors:
    """They as `0.weight`, `1.weight` …"""
    return {f"{number}.weight": tensor for number, tensor in enumerate(tensors)}


@golden_case(formats=("safetensors", "pt"))
def float8() -> Tensors:
    full = Float8Tensor.from_float(random())
    per_token = Granularity(kind=GranularityKind.token)
    asked = Activation(
        kind=ActivationKind.dynamic, dtype=torch.float8_e4m3fn, granularity=per_token
    )
    matmul = MatmulHint(emulate=False, fast_accumulation=True, pad_inner_dim=False)
    hint = KernelHint(matmul=matmul)
    return named(
        Float8Tensor.from_float(random(), granularity="tensor"),
        Float8Tensor.from_float(random(), dtype=torch.float8_e5m2),
        Float8Tensor.from_float(random(32, 32).bfloat16(), granularity=(16, 16)),
        Float8Tensor(
            full.qdata, full.scale, full.block_size, activation=asked, kernel=hint,
            dtype=torch.float32,
        ),
    )  # fmt: skip


@golden_case(formats=("safetensors", "pt"))
def int8() -> Tensors:
    return named(
        Int8Tensor.from_float(random()),
        Int8Tensor.from_float(random().bfloat16(), granularity="tensor"),
    )


@golden_case(formats=("safetensors", "pt"))
def int4() -> Tensors:
    domains = ("none", "int", "float", "offset")
    made = [Int4Tensor.from_float(random(), group_size=8, zero_domain=one) for one in domains]
    return named(*made, weights.make_full_int4(), weights.make_act_order_int4())


@golden_case
def intx() -> Tensors:
    widths = [IntxTensor.from_float(random(), bit_width=bits) for bits in range(1, 9)]
    return named(*widths, weights.make_full_intx())


@golden_case
def mx() -> Tensors:
    fp8 = MXTensor.from_float(random(N, 32).bfloat16())
    return named(fp8, weights.make_mxfp6(), weights.make_full_mxfp4())


@golden_case
def nvfp4() -> Tensors:
    return named(NVFP4Tensor.from_float(random().bfloat16()), weights.make_full_nvfp4())


@golden_case
def nf4() -> Tensors:
    return named(flat.make_nf4(), flat.make_nf4(2, 4))


@golden_case
def optimizer_states() -> dict[str, torch.Tensor]:
    made = (flat.make_8bit(), flat.make_4bit(), flat.make_fp8())
    return {f"state.{number}.exp_avg": state for number, state in enumerate(made)}


@golden_case
def unsigned_integers() -> Tensors:
    return {"codes": flat.make_uint()}


@golden_case
def prototype_tensors() -> Tensors:
    return {name: make() for name, make in prototypes.PROTOTYPES.items()}


class Tied(nn.Module):
    """Two layers of one quantized weight, a third of its own, and a plain norm."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(K, K), nn.Linear(K, K)
        self.last, self.norm = nn.Linear(K, N, bias=False), nn.LayerNorm(K)
        codes = torch.randint(-8, 8, (K, K), dtype=torch.int8)
        shared = Int8Tensor(codes, torch.full((K, 1), 0.25), (1, K), dtype=torch.float32)
        self.first.weight = self.second.weight = frozen(shared)
        self.last.weight = frozen(IntxTensor.from_float(random(N, K), bit_width=4))
        for layer in (self.first, self.second):
            layer.bias = frozen(torch.arange(K) / 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x))


def frozen(tensor: torch.Tensor | VersionedTensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def small_integers() -> torch.Tensor:
    """Sums of these and of few bits round nowhere, on any machine."""
    return torch.randint(-4, 5, (2, K)).float()


@golden_case(inputs=small_integers, formats=("safetensors", "pt"))
def tied_module() -> nn.Module:
    return Tied()
