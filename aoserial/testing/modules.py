"""Checks of a quantized weight in a module: parameters, state dicts, devices and dtypes."""

from __future__ import annotations

import copy

import torch
from torch import nn

from aoserial.testing.base import Checks, pointers
from aoserial.testing.expectations import expect, expect_equal, expect_same, own, refused


class Modules(Checks):
    """Parameters, state dicts, moving."""

    def test_a_parameter_keeps_its_class_and_shares_its_parts(self) -> None:
        tensor = self.tensor()
        parameter = nn.Parameter(tensor, requires_grad=False)
        expect(isinstance(parameter, nn.Parameter), "a parameter")
        expect(type(own(parameter)) is type(tensor), "a parameter of the same class")
        expect(pointers(parameter) == pointers(tensor), "a parameter that shares its parts")
        expect(nn.Parameter(tensor).requires_grad, "a parameter that may ask for gradients")

    def test_a_state_dict_goes_into_a_layer_that_is_like_it(self) -> None:
        source, target = self.layer(), self.layer()
        before = pointers(target.weight)
        target.load_state_dict(source.state_dict())
        expect_same(target.weight, source.weight, "the loaded weight")
        expect(pointers(target.weight) == before, "loading in place leaves the parts in place")

    def test_a_state_dict_replaces_weights_with_assign(self) -> None:
        source = self.layer()
        with torch.device("meta"):
            target = nn.Linear(source.in_features, source.out_features)
        target.load_state_dict(source.state_dict(), assign=True)
        expect_same(target.weight, source.weight, "the assigned weight")
        x = self.activation(source.weight)
        expect_equal(target(x), source(x), "the layer's output")

    def test_a_module_can_leave_its_bytes_and_get_room_for_them_again(self) -> None:
        source = self.layer()
        module = copy.deepcopy(source).to("meta")
        expect(module.weight.device.type == "meta", "a weight on the meta device")
        for name in own(module.weight).part_names():
            where = getattr(module.weight, name).device.type
            expect(where == "meta", f"part {name!r} on the meta device too")
        module.to_empty(device="cpu")
        expect(isinstance(module.weight, nn.Parameter), "to_empty gives a parameter")
        module.load_state_dict(source.state_dict())
        expect_same(module.weight, source.weight, "the weight loaded into that room")

    def test_a_module_cast_to_another_dtype_changes_only_what_its_weight_stands_for(self) -> None:
        module = self.layer()
        before = {name: getattr(module.weight, name) for name in own(module.weight).part_names()}
        module.to(torch.bfloat16)
        expect(module.weight.dtype == torch.bfloat16, "the new logical dtype")
        expect(own(module.weight).dequantize().dtype == torch.bfloat16, "dequantize() follows")
        for name, part in before.items():
            expect_equal(getattr(module.weight, name), part, f"part {name!r}, left as it was")
        x = self.activation(module.weight).bfloat16()
        expect(module(x).dtype == torch.bfloat16, "a layer that takes and gives the new dtype")

    def test_a_tensor_of_floats_does_not_become_one_of_integers(self) -> None:
        with refused(because="cannot be torch.int32"):
            self.tensor().to(torch.int32)
        with refused(because="dequantize()"):
            self.tensor().to(torch.float8_e4m3fn)

    def test_memory_is_pinned_where_there_is_an_accelerator(self) -> None:
        tensor = self.tensor()
        expect(tensor.is_pinned() is False, "pageable memory at first")
        if torch.accelerator.is_available():
            pinned = tensor.pin_memory()
            expect(pinned.is_pinned(), "pinned memory")
            expect_same(pinned, tensor, "the pinned tensor")
