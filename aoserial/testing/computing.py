"""Checks of what a quantized weight computes."""

from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from aoserial.tensors.products import asks_of_activation
from aoserial.tensors.transposed import Transposed
from aoserial.testing.base import Checks
from aoserial.testing.expectations import expect, expect_equal, expect_same, refused


class Computing(Checks):
    """Products, look-ups, and what they stand for."""

    def test_dequantize_gives_a_plain_tensor_on_every_road(self) -> None:
        tensor = self.tensor()
        plain = tensor.dequantize()
        expect(plain.shape == tensor.shape, "dequantize() keeps the shape")
        expect(plain.dtype == tensor.dtype, "dequantize() gives the logical dtype")
        expect(plain.isfinite().all(), "finite values")
        expect_equal(torch.dequantize(tensor), plain, "torch.dequantize")
        expect_equal(torch.Tensor.dequantize(tensor), plain, "torch.Tensor.dequantize")
        expect(tensor.dequantize(torch.float64).dtype == torch.float64, "dequantize(dtype)")

    def test_a_linear_layer_is_that_of_the_dequantized_weight(self) -> None:
        weight = self.weight()
        x, bias = self.activation(weight, 2, 3), torch.randn(weight.shape[0])
        found = F.linear(x, weight, bias)
        expect(type(found) is torch.Tensor, "a layer gives a plain tensor")
        expect(found.dtype == x.dtype, "a layer gives the dtype of its activation")
        expect(found.shape == (2, 3, weight.shape[0]), "a layer gives [..., N]")
        expect(found.isfinite().all(), "finite values")
        if not asks_of_activation(weight):
            plain = weight.dequantize().to(x.dtype)
            torch.testing.assert_close(found, F.linear(x, plain, bias))
        expect_equal(F.linear(input=x, weight=weight, bias=bias), found, "by keyword")

    def test_every_road_to_a_product_gives_the_same(self) -> None:
        weight = self.weight()
        x, bias = self.activation(weight, 3), torch.randn(weight.shape[0])
        expected, bare = F.linear(x, weight, bias), F.linear(x, weight)
        with torch.inference_mode():
            expect_equal(F.linear(x, weight, bias).clone(), expected, "in inference mode")
        with torch._C.DisableTorchFunctionSubclass():
            expect_equal(F.linear(x, weight, bias), expected, "below torch functions")
        expect_equal(torch.addmm(bias, x, weight.t()), expected, "addmm")
        for transposed in (weight.t(), weight.T, weight.mT, weight.transpose(-1, -2)):
            expect_equal(x @ transposed, bare, f"x @ w{transposed.called}")  # type: ignore[attr-defined]
        expect_equal(x[None] @ weight.T, bare[None], "x of three dimensions @ w.T")

    def test_gradients_reach_the_activation_or_are_refused(self) -> None:
        """A weight that quantizes its activation has none: rounding has no slope."""
        weight = self.weight()
        x = self.activation(weight).requires_grad_()
        if asks_of_activation(weight):
            with refused(because="without gradients", why="x @ w.mT went backward"):
                (x @ weight.mT).sum().backward()  # type: ignore[no-untyped-call]
            return
        expected = weight.dequantize().to(x.dtype).sum(0).expand_as(x)
        for product in (F.linear(x, weight), x @ weight.t()):
            (gradient,) = torch.autograd.grad(product.sum(), x)
            torch.testing.assert_close(gradient, expected)

    def test_a_weight_on_the_other_side_is_what_it_stands_for_or_refused(self) -> None:
        weight = self.weight()
        x = torch.randn(2, weight.shape[0], dtype=weight.dtype)
        if asks_of_activation(weight):
            with refused(because="its activation", why="x @ w forgot what the weight asks"):
                x @ weight
        else:
            expect_equal(x @ weight, x @ weight.dequantize(), "x @ w")

    def test_a_transposed_weight_gives_itself_back_and_nothing_else(self) -> None:
        weight = self.weight()
        transposed = weight.t()
        expect(isinstance(transposed, Transposed), "a view by which one multiplies")
        expect(transposed.shape == weight.shape[::-1], "[K, N]")
        expect_same(transposed.t(), weight, "w.t().t()")
        expect(repr(transposed) == f"{weight!r}.mT", "a look at the weight and .mT")
        with refused(because="aten.add", why="a sum with a transposed weight"):
            transposed + 1
        with refused(because="x @ w.mT", why="a product from the wrong side"):
            transposed @ torch.randn(weight.shape[0], 2)

    def test_an_activation_may_not_be_quantized_itself(self) -> None:
        weight = self.weight()
        with refused(because="as its weight only"):
            F.linear(weight, torch.randn(2, weight.shape[1]))

    def test_an_embedding_looks_up_dequantized_rows(self) -> None:
        weight = self.weight()
        rows = torch.tensor([[1, weight.shape[0] - 1], [0, 1]])
        expected = weight.dequantize()[rows]
        expect_equal(F.embedding(rows, weight), expected, "F.embedding")
        module = nn.Embedding(*weight.shape)
        module.weight = nn.Parameter(weight, requires_grad=False)
        expect_equal(module(rows), expected, "nn.Embedding")
        with torch._C.DisableTorchFunctionSubclass():
            expect_equal(F.embedding(rows, weight), expected, "below torch functions")
        with refused(because="max_norm"):
            F.embedding(rows, weight, max_norm=1.0)

    def test_what_a_weight_has_no_operator_for_is_refused_by_name(self) -> None:
        weight, name = self.weight(), type(self.weight()).__name__
        with refused(NotImplementedError, because=f"{name} has no aten.add"):
            weight + 1
        with refused(because="dequantize()"):
            weight.mul_(2)
        with refused(because="aten.equal"):
            torch.equal(weight, weight)
        with refused(because="no view of shape"):
            weight.view(-1, 1)
        with refused(because="have their places"):
            weight.permute(0, 1)
