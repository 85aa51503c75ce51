"""int4 on a CPU with its packed form alone: multiplied by, and given back."""

from __future__ import annotations

import pytest
import torch
from support.tensors import same_bytes
from torch import nn

import aoserial
from aoserial.kernels import DeviceInfo, PackedWeight, linear, prepare, restore

pytestmark = [
    pytest.mark.usefixtures("without_native"),  # which needs no form of its own
    pytest.mark.skipif(
        "avx2" not in DeviceInfo.of(torch.device("cpu")).features,
        reason="this CPU has no AVX2: torch's int4 kernel is NOT checked",
    ),
]


def layer(rows: int, columns: int, domain: str, *, ordered: bool = False) -> nn.Linear:
    w = torch.randn(rows, columns, dtype=torch.bfloat16)
    weight = aoserial.Int4Tensor.from_float(w, group_size=32, zero_domain=domain)
    if ordered:
        group_index = torch.arange(columns)[torch.randperm(columns)] // 32
        weight = aoserial.Int4Tensor(
            weight.qdata,
            weight.scale,
            weight.block_size,
            weight.zero_domain,
            weight.zero_point,
            group_index=group_index.to(torch.int32),
            shape=weight.shape,
            dtype=weight.dtype,
        )
    made = nn.Linear(columns, rows, dtype=torch.bfloat16)
    made.weight = nn.Parameter(weight, requires_grad=False)
    made.bias.requires_grad_(False)
    return made


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("domain", ["none", "int", "float", "offset"])
@pytest.mark.parametrize("shape", [(16, 32), (64, 96), (144, 64)])
def test_int4_packed_alone_is_multiplied_by_and_restored_byte_for_byte(
    shape: tuple[int, int], domain: str, ordered: bool
) -> None:
    torch.manual_seed(0)
    made = layer(*shape, domain, ordered=ordered)
    weight = made.weight
    before = {name: getattr(weight, name).clone() for name in weight.part_names()}
    assert prepare(made, free=True) == {"weight": "cpu (freed)"}
    assert isinstance(made.weight, PackedWeight)
    assert "part_qdata" not in vars(made.weight)
    for dtype, rows in ((torch.bfloat16, 1), (torch.bfloat16, 33), (torch.float32, 3)):
        x = torch.randn(rows, shape[1], dtype=dtype)
        expected = linear(x, weight.kernel_weight(), made.bias.to(dtype), backend="reference")
        size = x.abs().float() @ weight.dequantize(torch.float32).abs().t() + made.bias.abs()
        found = torch.nn.functional.linear(x, made.weight, made.bias.to(dtype))
        bound = 4 * torch.finfo(torch.bfloat16).eps * size
        assert bool(((found.float() - expected.float()).abs() <= bound).all())
    restore(made)
    for name, part in before.items():
        assert same_bytes(getattr(made.weight, name), part)


def test_a_freed_model_may_be_put_into_shared_memory() -> None:
    made = layer(64, 96, "none")
    x = torch.randn(2, 96, dtype=torch.bfloat16)
    expected = made(x)
    assert prepare(made, free=True) == {"weight": "cpu (freed)"}
    assert not made.weight.is_shared()
    made.share_memory()
    assert made.weight.is_shared()
    assert torch.equal(made(x), expected)
