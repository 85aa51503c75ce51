"""A weight that was written to after it was packed is packed again, however it was reached."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F  # noqa: N812

import aoserial

Reached = Callable[[aoserial.Int8Tensor], torch.Tensor]

WAYS: dict[str, Reached] = {
    "a slice": lambda weight: weight[16:32],
    "a chunk": lambda weight: weight.chunk(2)[1],
    "one of two sizes": lambda weight: weight.split([16, 48])[1],
    "an alias": torch.ops.aten.alias.default,
    "a detached one": torch.ops.aten.detach.default,
    "a slice of a slice": lambda weight: weight[16:48][0:16],
    "one of a stack": lambda weight: weight.unsqueeze(0)[0],
}


@pytest.mark.parametrize("written", ["the whole", "the view"])
@pytest.mark.parametrize("way", WAYS)
def test_a_write_is_seen_through_views(way: str, written: str) -> None:
    whole, x = aoserial.Int8Tensor.from_float(torch.randn(64, 32)), torch.randn(2, 32)
    view = WAYS[way](whole)
    before = F.linear(x, view), F.linear(x, whole)
    with torch.no_grad():
        (whole if written == "the whole" else view).scale.mul_(2)
    assert torch.equal(F.linear(x, view), 2 * before[0])
    after = F.linear(x, whole)
    assert torch.equal(after, F.linear(x, aoserial.Int8Tensor(**_copies(whole))))
    assert not torch.equal(after, before[1])


def test_a_stack_that_was_written_to_is_packed_again() -> None:
    stack, x = aoserial.Int8Tensor.from_float(torch.randn(3, 16, 32)), torch.randn(3, 2, 32)
    before = torch.bmm(x, stack.mT)
    stack.scale.mul_(2)
    assert torch.equal(torch.bmm(x, stack.mT), 2 * before)


def test_another_view_of_the_same_address_is_packed_anew() -> None:
    weight, x = aoserial.Int8Tensor.from_float(torch.randn(64, 32)), torch.randn(2, 32)
    F.linear(x, weight)
    weight.scale = weight.scale[:1].expand_as(weight.scale)
    assert torch.equal(F.linear(x, weight), F.linear(x, aoserial.Int8Tensor(**_copies(weight))))


def _copies(weight: aoserial.Int8Tensor) -> dict[str, object]:
    return {
        "qdata": weight.qdata.clone(),
        "scale": weight.scale.clone(),
        "block_size": weight.block_size,
    }
