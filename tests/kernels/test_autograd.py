"""A layer under autocast, and what torch derives from it."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import aoserial
from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import ActivationSpec, Spec, linear, prepare
from aoserial.kernels.text import spec_of, spec_text

# torch's own, of the first use of forward mode and of torch.func
deprecated = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated")


def weight(rows: int = 64, columns: int = 64) -> aoserial.Int4Tensor:
    made = torch.randn(rows, columns, dtype=torch.bfloat16)
    return aoserial.Int4Tensor.from_float(made, group_size=32)


def derivative_forward(held: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.forward_ad.dual_level():
        return F.linear(torch.autograd.forward_ad.make_dual(x, torch.ones_like(x)), held)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("rows", [64, 1024])  # more than a thread of ours takes by itself
def test_autocast_gives_what_an_activation_of_its_dtype_gives(
    rows: int, dtype: torch.dtype
) -> None:
    held, x = weight(rows, 1024), torch.randn(3, 1024, dtype=dtype, requires_grad=True)
    bias = torch.randn(rows)
    expected = F.linear(x.bfloat16(), held, bias)
    for _ in range(2):  # the second time by what is remembered of the first
        with torch.autocast("cpu", torch.bfloat16):
            y = F.linear(x, held, bias)
        assert torch.equal(y, expected)
    (of_x,) = torch.autograd.grad(y.float().sum(), x)
    (of_expected,) = torch.autograd.grad(expected.float().sum(), x)
    assert of_x.dtype == dtype
    assert torch.equal(of_x, of_expected)


def test_autocast_leaves_float64_and_the_products_of_backends() -> None:
    held, x = weight(), torch.randn(3, 64, dtype=torch.float64)
    expected = F.linear(x, held)
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(F.linear(x, held), expected)
        y = linear(x, held.kernel_weight(), backend="reference")
    assert torch.equal(y, linear(x, held.kernel_weight(), backend="reference"))


@pytest.mark.usefixtures("without_native")
def test_a_freed_layer_and_a_traced_one_follow_autocast() -> None:
    layer, x = nn.Linear(64, 64, bias=False), torch.randn(3, 64)
    layer.weight = nn.Parameter(weight(), requires_grad=False)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    expected = layer(x.bfloat16())
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(compiled(x), expected)
        assert prepare(layer, free=True) == {"weight": "cpu (freed)"}
        assert torch.equal(layer(x), expected)


@deprecated
def test_a_weight_first_multiplied_by_within_a_transformation_is_of_use_after_it() -> None:
    for make in (aoserial.Float8Tensor.from_float, aoserial.Int4Tensor.from_float):
        held, x = make(torch.randn(48, 128)), torch.randn(2, 128)
        gradient = torch.func.grad(lambda u, w: F.linear(u, w).sum())(x, held)
        w = held.dequantize()
        torch.testing.assert_close(gradient, w.sum(dim=0).expand(2, 128), rtol=1e-5, atol=1e-4)
        torch.testing.assert_close(F.linear(x, held), x @ w.t(), rtol=1e-5, atol=1e-4)


@deprecated
def test_derivatives_of_derivatives_and_of_functions_are_those_of_a_plain_layer() -> None:
    held = aoserial.Int4Tensor.from_float(torch.randn(64, 64), group_size=32)
    x = torch.randn(3, 64, dtype=torch.float64)
    plain = held.dequantize().double()

    def by(w: torch.Tensor) -> torch.Tensor:
        return torch.func.grad(lambda u: F.linear(u, w).pow(3).sum())(x)

    torch.testing.assert_close(by(held), by(plain), rtol=1e-5, atol=1e-3)
    few = x[:1].clone().requires_grad_()
    assert torch.autograd.gradgradcheck(lambda u: F.linear(u, held).pow(2), few, fast_mode=True)


@deprecated
@pytest.mark.parametrize("rows", [64, 1024])
def test_forward_mode_is_refused_and_not_lost(rows: int) -> None:
    with pytest.raises(UnsupportedOperationError, match="no forward-mode derivative"):
        derivative_forward(weight(rows, 1024), torch.randn(3, 1024))


def test_a_weight_written_to_before_its_gradient_is_asked_for_is_noticed() -> None:
    held, x = weight(), torch.randn(3, 64, requires_grad=True)
    y = F.linear(x, held)
    other = copy.deepcopy(held)
    F.linear(x, other).sum().backward()
    held.scale.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_bounds_that_are_infinite_are_kept_by_a_graph() -> None:
    activation = ActivationSpec(
        static=False, dtype="float8_e4m3fn", granularity="row", upper_bound=float("inf")
    )
    spec = Spec(
        kind="float8",
        data_dtype="float8_e4m3fn",
        shape=(2, 4),
        dtype="float32",
        block_size=(1, 4),
        activation=activation,
    )
    assert spec_of(spec_text(spec)) == spec
