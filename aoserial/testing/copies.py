"""Checks of copies: those that share memory with their source, and those that do not."""

from __future__ import annotations

import copy

import torch

from aoserial.testing.base import Checks, is_sliceable, pointers
from aoserial.testing.expectations import expect, expect_same, own, refused


class Copies(Checks):
    """clone, deepcopy, detach, copy_, room for copies, shared memory."""

    def test_copies_are_equal(self) -> None:
        tensor = self.tensor()
        expect_same(tensor.clone(), tensor, "clone()")
        expect_same(copy.deepcopy(tensor), tensor, "deepcopy")
        expect_same(copy.copy(tensor), tensor, "copy.copy")
        expect_same(tensor.to("cpu", copy=True), tensor, ".to(copy=True)")
        expect_same(tensor.contiguous(), tensor, "contiguous()")

    def test_a_deep_copy_of_a_module_shares_nothing(self) -> None:
        module = self.layer()
        twin = copy.deepcopy(module)
        expect(isinstance(twin.weight, torch.nn.Parameter), "a parameter")
        expect_same(twin.weight, module.weight, "the deep copy")
        _expect_apart(twin.weight, module.weight)

    def test_detaching_shares_the_parts_and_cloning_does_not(self) -> None:
        tensor = self.tensor()
        expect(pointers(tensor.detach()) == pointers(tensor), "detach() shares")
        expect(pointers(tensor.data) == pointers(tensor), ".data shares")
        expect(pointers(tensor.view(tensor.shape)) == pointers(tensor), "a view shares")
        _expect_apart(tensor.clone(), tensor)
        whole = tensor.clone()
        expect(whole.contiguous() is whole, "contiguous() of what is contiguous is itself")
        expect(tensor.cpu() is tensor, "cpu() of what is there is itself")

    def test_copying_returns_the_target(self) -> None:
        target, source = self.tensor(), self.tensor()
        whole = target.clone()
        expect(whole.copy_(source) is whole, "copy_ returns its target")
        expect_same(whole, source, "the target of copy_")

    def test_copying_between_plain_and_quantized_says_what_to_do(self) -> None:
        tensor = self.tensor()
        with refused(because="assign=True", why="a quantized tensor was copied into a plain one"):
            torch.zeros(tensor.shape).copy_(tensor)
        with refused(because="quantize it first", why="a plain tensor was copied into this one"):
            tensor.copy_(torch.zeros(tensor.shape))

    def test_room_for_zeros_stands_for_zeros(self) -> None:
        """FSDP and DTensor make room so, and fill it or leave it."""
        tensor = self.tensor()
        expect_same(torch.empty_like(tensor).copy_(tensor), tensor, "what is copied into room")
        if not is_sliceable(tensor):
            with refused(because="does not say how its parts follow"):
                torch.zeros_like(tensor)
            return
        zeros = own(torch.zeros_like(tensor))
        expect(zeros._same_metadata(tensor), "zeros_like changes values only")
        expect(not zeros.dequantize().any(), "zeros")
        _expect_apart(zeros, tensor)
        rows, dim = list(tensor.shape), tensor.dim() - 2
        rows[dim if tensor.part_layout().why_whole(dim) is None else 0] *= 2
        more = own(tensor.new_zeros(rows))
        expect(list(more.shape) == rows, "room of another size")
        expect(list(more.dequantize().shape) == rows, "all of it in the parts")
        expect(not more.dequantize().any(), "zeros of another size")
        with refused(because="the number of dimensions stays"):
            tensor.new_zeros(tensor.numel())

    def test_sharing_memory_shares_every_part(self) -> None:
        """torch's own `share_memory_` would kill the process: a wrapper has no memory."""
        tensor = own(self.tensor().clone())
        ours = type(tensor).share_memory_ is not torch.Tensor.share_memory_
        expect(ours, "a share_memory_ of the class's own")
        expect(not tensor.is_shared(), "memory of this process at first")
        expect(tensor.share_memory_() is tensor, "share_memory_ returns the tensor")
        expect(tensor.is_shared(), "memory that is shared")
        for name in tensor.part_names():
            expect(getattr(tensor, name).is_shared(), f"part {name!r} in shared memory")


def _expect_apart(found: object, source: object) -> None:
    ours, theirs = pointers(found), pointers(source)
    shared = [name for name, pointer in ours.items() if pointer == theirs[name]]
    expect(not shared, f"memory of its own, not the source's for {shared}")
