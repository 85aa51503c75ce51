"""Optimizer states against torchao 0.18's own: the same codes, scales and values.

Skipped where torchao is not installed (`pip install torchao==0.18.0`).
"""

from __future__ import annotations

import warnings

import pytest
import torch
from support.tensors import same_bytes

from aoserial.tensors import OptimState4bit, OptimState8bit, OptimStateFp8

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torchao warns of what it cannot use on this machine
    pytest.importorskip(
        "torchao", reason="torchao is NOT installed: states are not compared with the real ones"
    )
    from torchao.optim import subclass_4bit, subclass_8bit, subclass_fp8


def values(*, signed: bool) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(32, 64) ** 5
    x[3] = 0
    return x if signed else x.abs()


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(
    ("ours", "of_torchao"),
    [
        (OptimState8bit, subclass_8bit.OptimState8bit),
        (OptimState4bit, subclass_4bit.OptimState4bit),
    ],
)
def test_the_bits_are_torchaos(ours: type, of_torchao: type, signed: bool) -> None:
    x = values(signed=signed)
    made = of_torchao.zeros(x.shape, signed, 64).copy_(x)
    found = ours.from_float(x, signed=signed, block_size=64)
    for name in found.part_names():
        assert same_bytes(getattr(found, name), getattr(made, name)), name
    assert same_bytes(found.dequantize(), made.dequantize())


def test_the_bits_of_fp8_are_torchaos() -> None:
    x = values(signed=True)
    made = subclass_fp8.OptimStateFp8.zeros(x.shape, 64).copy_(x)
    found = OptimStateFp8.from_float(x, block_size=64)
    for name in found.part_names():
        assert same_bytes(getattr(found, name), getattr(made, name)), name
    assert same_bytes(found.dequantize(), made.dequantize())
