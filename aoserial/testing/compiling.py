"""Checks of what compilers and exporters ask."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from aoserial.tensors import VersionedTensor
from aoserial.testing.base import Checks, is_sliceable
from aoserial.testing.expectations import expect, expect_equal, expect_same, own, quiet
from aoserial.testing.slices import first_cut


class Compiling(Checks):
    """torch.compile and torch.export, whole graphs alone."""

    def test_a_flattened_tensor_is_put_together_again(self) -> None:
        tensor = self.tensor()
        names, metadata = tensor.__tensor_flatten__()
        hash(metadata)  # guards hash it
        expect(metadata == copy.deepcopy(metadata), "metadata that compares by value")
        inner = {name: getattr(tensor, name) for name in names}
        found = type(tensor).__tensor_unflatten__(inner, metadata, tensor.shape, tensor.stride())
        expect_same(found, tensor, "what was flattened and put together")

    def test_a_layer_compiles_whole(self) -> None:
        layer = self.layer()
        x = self.activation(layer.weight)
        expect_equal(compiled(layer)(x), layer(x), "the compiled layer")

    def test_inductor_compiles_a_layer(self) -> None:
        layer = self.layer()
        x = self.activation(layer.weight)
        torch.testing.assert_close(compiled(layer, backend="inductor")(x), layer(x))

    def test_other_roads_to_a_product_compile(self) -> None:
        weight = self.weight()
        x = self.activation(weight)
        found = compiled(lambda x, w: x @ w.mT)(x, weight)
        expect_equal(found, x @ weight.mT, "the compiled product")

    def test_dequantizing_compiles_and_so_do_slices(self) -> None:
        tensor = self.tensor()
        dim, bound = first_cut(tensor) if is_sliceable(tensor) else (0, 0)

        def plain(tensor: VersionedTensor) -> torch.Tensor:
            part = tensor.narrow(dim, 0, bound) if bound else tensor
            return own(part).dequantize()

        expect_equal(compiled(plain)(tensor), plain(tensor), "what was compiled")

    def test_a_compiled_function_may_return_its_weight(self) -> None:
        tensor = self.tensor()
        expect_same(compiled(torch.Tensor.detach)(tensor), tensor, "what the function returned")

    def test_a_layer_is_exported_saved_and_loaded(self) -> None:
        layer = self.layer()
        x = self.activation(layer.weight)
        for strict in (True, False):
            with quiet():
                program = torch.export.export(layer, (x,), strict=strict)
                expect_equal(program.module()(x), layer(x), f"the exported layer, {strict=}")
                file = io.BytesIO()
                torch.export.save(program, file)
                file.seek(0)
                loaded = torch.export.load(file).module()
            expect_equal(loaded(x), layer(x), f"the exported layer, saved and loaded, {strict=}")


def compiled(
    function: Callable[..., Any] | nn.Module, *, backend: str = "aot_eager"
) -> Callable[..., Any]:
    """The function in one graph, compiled anew."""
    torch.compiler.reset()
    whole = torch.compile(function, backend=backend, fullgraph=True)

    def call(*args: Any) -> Any:
        with quiet():
            return whole(*args)

    return call
