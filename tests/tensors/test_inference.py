"""What works outside inference mode works in it, on tensors made outside of it and inside."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import aoserial

Use = Callable[[aoserial.Int8Tensor, torch.Tensor], torch.Tensor]

USES: dict[str, Use] = {
    "F.linear": lambda w, x: F.linear(x, w),
    "x @ w.T": lambda w, x: x @ w.T,
    "x @ w.mT": lambda w, x: x.repeat(2, 1, 1) @ w.mT,
    "mm": lambda w, x: torch.mm(x, w.t()),
    "addmm": lambda w, x: torch.addmm(torch.ones(16), x, w.t()),
    "a slice": lambda w, x: F.linear(x, w[2:5]),
    "narrow": lambda w, _: w.narrow(1, 0, 32).dequantize(),
    "chunks": lambda w, _: torch.cat([each.dequantize() for each in w.chunk(2)]),
    "embedding": lambda w, _: F.embedding(torch.tensor([1, 2]), w),
    "transposed twice": lambda w, _: w.mT.mT.dequantize(),
}
STACKED: dict[str, Use] = {
    "bmm": lambda w, x: torch.bmm(x.expand(3, 3, 32), w.mT),
    "matmul": lambda w, x: x.expand(3, 3, 32) @ w.mT,
    "each": lambda w, x: torch.stack([F.linear(x, each) for each in w]),
    "one": lambda w, x: F.linear(x, w[1]),
}


@pytest.mark.parametrize("name", [*USES, *STACKED])
def test_inference_mode_changes_nothing(name: str) -> None:
    torch.manual_seed(0)
    plain = torch.randn(16, 32) if name in USES else torch.randn(3, 16, 32)
    x, weight = torch.randn(3, 32), aoserial.Int8Tensor.from_float(plain)
    use = {**USES, **STACKED}[name]
    with torch.no_grad():
        expected = use(weight, x)
    with torch.inference_mode():
        assert torch.equal(use(weight, x), expected)


@pytest.mark.parametrize("name", [*USES, *STACKED])
@pytest.mark.filterwarnings("ignore:int8 runs on the slow reference kernel")
def test_tensors_made_in_inference_mode_are_used_there(name: str) -> None:
    torch.manual_seed(0)
    plain, x = torch.randn(16, 32) if name in USES else torch.randn(3, 16, 32), torch.randn(3, 32)
    use = {**USES, **STACKED}[name]
    with torch.no_grad():
        expected = use(aoserial.Int8Tensor.from_float(plain), x)
    with torch.inference_mode():
        found = use(aoserial.Int8Tensor.from_float(plain), x)
    torch.testing.assert_close(found, expected)
