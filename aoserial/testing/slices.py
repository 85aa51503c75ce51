"""Checks of slices: views that share memory with what they are cut from, and joins that undo them.

A class that does not say how its parts follow its dimensions is held to refuse them all.
"""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import nn

from aoserial.errors import BlockCutError
from aoserial.tensors import CLASSES, VersionedTensor, from_record, to_record
from aoserial.tensors.layout import leading
from aoserial.testing.base import Checks, is_sliceable, pointers
from aoserial.testing.expectations import expect, expect_equal, expect_same, own, refused


class Slices(Checks):
    """narrow, slices, chunk, split, cat."""

    def test_slicing_and_dequantizing_commute(self) -> None:
        tensor = self.tensor()
        if not is_sliceable(tensor):
            with refused(because="declare `dims`", why="a class without shape rules was sliced"):
                tensor.narrow(0, 0, 1)
            return
        plain = tensor.dequantize()
        inner = [bound for dim in range(tensor.dim()) for bound in cuts(tensor, dim)[1:-1]]
        expect(inner, "a tensor from make() that can be cut: two blocks or more")
        for dim in range(tensor.dim()):
            bounds = cuts(tensor, dim)
            for start, stop in [*pairwise(bounds), (0, bounds[0])]:
                what = f"[{start}:{stop}] along {dim}"
                found = _narrow(tensor, dim, start, stop)
                expect(type(found) is type(tensor), f"{what} is of the same class")
                expect_equal(found.dequantize(), plain.narrow(dim, start, stop - start), what)
                expect(found.stride() == tensor.stride(), f"{what} keeps the strides")
                index = (*[slice(None)] * dim, slice(start, stop))
                expect_same(tensor[index], found, f"w{list(index)}")
                if stop > start:
                    again = from_record(to_record(found))
                    expect_same(again, found.contiguous(), f"{what}, saved and loaded")

    def test_a_cut_through_a_block_is_refused(self) -> None:
        tensor = self.tensor()
        if not is_sliceable(tensor):
            with refused(because="declare `dims`"):
                tensor.chunk(2)
            return
        stacked = leading(CLASSES.tensor(type(tensor)).schema, tensor.dim())
        for dim in range(stacked, tensor.dim()):  # one of a stack may be taken out of a block
            allowed = cuts(tensor, dim)
            for bound in range(1, tensor.shape[dim]):
                if bound not in allowed:
                    with refused(BlockCutError, why=f"a cut at {bound} along {dim}"):
                        tensor.narrow(dim, bound, tensor.shape[dim] - bound)
            with refused(because="steps of 1, not 2"):
                tensor[(*[slice(None)] * dim, slice(None, None, 2))]
        with refused(IndexError, why="a dimension that is not there"):
            tensor.narrow(tensor.dim(), 0, 1)

    def test_writing_into_a_slice_writes_into_the_tensor_or_is_refused(self) -> None:
        """How servers load shards. What a slice shares with the rest must not change under it."""
        loaded = self.tensor()
        parameter = own(nn.Parameter(self.tensor().clone(), requires_grad=False))
        if not is_sliceable(loaded):
            with refused(because="declare `dims`"):
                parameter.data[:1].copy_(loaded[:1])
            return
        dim, bound = first_cut(loaded)
        length = loaded.shape[dim]
        target = _narrow(parameter.data, dim, 0, bound)
        rest = _narrow(parameter.data, dim, bound, length)
        source = _narrow(loaded, dim, 0, bound)
        before = rest.dequantize()
        if set(pointers(target).items()) & set(pointers(rest).items()):
            with refused(because="with the rest", why="what the rest shares was overwritten"):
                target.copy_(source)
        else:
            target.copy_(source)
            expect_equal(target.dequantize(), source.dequantize(), "the slice that was written")
            found = parameter.dequantize().narrow(dim, 0, bound)
            expect_equal(found, source.dequantize(), "the tensor that the slice is of")
        expect_equal(rest.dequantize(), before, "the rest of the tensor")

    def test_chunks_and_splits_are_slices_and_cat_undoes_them(self) -> None:
        tensor = self.tensor()
        if not is_sliceable(tensor):
            with refused(because="does not say how its parts follow"):
                torch.cat([tensor, tensor])
            return
        dim, bound = first_cut(tensor)
        length = tensor.shape[dim]
        sizes = [bound, length - bound]
        halves = [_narrow(tensor, dim, 0, bound), _narrow(tensor, dim, bound, length)]
        for parts in (
            torch.split(tensor, sizes, dim),
            torch.split(tensor, sizes, dim - tensor.dim()),
        ):
            for found, expected in zip(parts, halves, strict=True):
                expect_same(found, expected, f"split({sizes}, {dim})")
                expect(pointers(found) == pointers(expected), "a split that shares memory")
        pieces = torch.split(tensor, bound, dim)
        expect(sum(piece.shape[dim] for piece in pieces) == length, "a last piece that is smaller")
        for parts in (pieces, torch.split(tensor, sizes, dim)):
            whole = own(torch.cat(parts, dim))
            expect_same(whole, tensor.contiguous(), "what cat makes of the pieces")
        with refused(ValueError, RuntimeError, because=str(length), why="sizes that miss some"):
            torch.split(tensor, [bound], dim)

    def test_joining_and_dequantizing_commute_or_joining_is_refused(self) -> None:
        """Of tensors that share nothing: what belongs to each as a whole cannot be joined."""
        one, other = self.tensor(), self.tensor()
        with refused(because="plain one cannot be joined"):
            torch.cat([one, other.dequantize()])
        if not is_sliceable(one):
            with refused(because="does not say how its parts follow"):
                torch.cat([one, other])
            return
        for dim in range(one.dim()):
            layout = one.part_layout()
            whole = [name for name in layout.parts if name not in layout.axes(dim)]
            if whole or layout.why_whole(dim) is not None:
                with refused(why=f"tensors were joined along {dim} that have {whole} each"):
                    torch.cat([one, other], dim)
            else:
                found = own(torch.cat([one, other], dim)).dequantize()
                expected = torch.cat([one.dequantize(), other.dequantize()], dim)
                expect_equal(found, expected, f"cat along {dim}")


class Stacks(Checks):
    """Stacks of weights, as mixtures of experts have them."""

    def stack(self) -> VersionedTensor | None:
        """Three weights in a stack, or None where the class has no shape rules."""
        weights: list[torch.Tensor] = [self.weight() for _ in range(3)]
        if not is_sliceable(own(weights[0])):
            with refused(because="dimension", why="a stack without shape rules"):
                torch.stack(weights)
            return None
        if self._whole(weights[0].unsqueeze(0)):
            with refused(because="as a whole", why="weights with settings of their own"):
                torch.stack(weights)
            return own(torch.stack([weights[0]] * 3))
        stack = own(torch.stack(weights))
        for index, weight in enumerate(weights):
            expect_equal(stack.dequantize()[index], own(weight).dequantize(), f"weight {index}")
        return stack

    def test_one_of_a_stack_is_a_view_of_it(self) -> None:
        stack = self.stack()
        if stack is None:
            return
        plain = stack.dequantize()
        for index, one in enumerate(stack.unbind(0)):
            expect_same(stack[index], one, f"stack[{index}]")
            expect_same(stack[index - 3], one, f"stack[{index - 3}]")
            expect(one.shape == stack.shape[1:], "a weight of two dimensions")
            expect(one.stride() == stack.stride()[1:], "strides of the stack")
            expect_equal(own(one).dequantize(), plain[index], f"weight {index}")
        expect_same(stack[1].unsqueeze(0), stack[1:2].contiguous(), "a stack of one")
        expect_same(stack[1:2].squeeze(0), stack[1], "the one of a stack of one")
        expect(stack.squeeze(0).shape == stack.shape, "squeeze leaves a stack of three")
        expect_same(torch.stack(stack.unbind()), stack, "what stack makes of the unbound")
        if not self._whole(stack):
            stack[1].copy_(stack[0])
            expect_equal(stack.dequantize()[1], plain[0], "the weight that was written")
            expect_equal(stack.dequantize()[2], plain[2], "the weight beside it")
        for outside in (3, -4):
            with refused(IndexError, why="a weight that is not there"):
                stack.select(0, outside)
        schema, one = CLASSES.tensor(type(stack)).schema, stack[0]
        with refused(because="in front", why="a dimension inside a weight was added"):
            stack.unsqueeze(leading(schema, stack.dim()) + 1)
        with refused(because="in front", why="a row or an element of a weight"):
            one.select(leading(schema, one.dim()), 1)

    def test_a_stack_multiplies_each_by_its_own(self) -> None:
        stack = self.stack()
        if stack is None:
            return
        x = torch.randn(3, 2, stack.shape[-1])
        expected = torch.stack([x[i] @ own(stack[i]).t() for i in range(3)])
        for transposed in (stack.mT, stack.transpose(1, 2), stack.permute(0, 2, 1)):
            expect_equal(torch.bmm(x, transposed), expected, "bmm")
            expect_equal(x @ transposed, expected, "matmul")
            expect_same(transposed.mT, stack, "the transposed stack, transposed")
        rows = torch.cat([x[0], x[2], x[:1, 0]])
        ends = torch.tensor([2, 2, 4], dtype=torch.int32)
        found = torch._grouped_mm(rows, stack.mT, offs=ends)
        expect_equal(found[:2], expected[0], "grouped_mm, the first group")
        expect_equal(found[2:4], expected[2], "grouped_mm, the third, behind an empty one")
        expect(not found[4:].any(), "zeros for rows of no group")
        with refused(because="3 weights", why="a group too few"):
            torch._grouped_mm(rows, stack.mT, offs=ends[:2])
        with refused(because="from the left", why="a product from the wrong side"):
            torch.bmm(stack.mT, x)

    def _whole(self, stack: torch.Tensor) -> list[str]:
        """The parts that the weights of a stack share."""
        layout = own(stack).part_layout()
        return [name for name in layout.parts if name not in layout.axes(0)]


def cuts(tensor: VersionedTensor, dim: int) -> list[int]:
    """The bounds at which a tensor can be cut along a dimension, its ends among them."""
    allowed = []
    for bound in range(tensor.shape[dim] + 1):
        try:
            tensor.narrow(dim, 0, bound)
        except BlockCutError:
            continue
        allowed.append(bound)
    return allowed


def first_cut(tensor: VersionedTensor) -> tuple[int, int]:
    """A dimension along which a tensor can be cut, and where."""
    for dim in range(tensor.dim()):
        inner = cuts(tensor, dim)[1:-1]
        if inner:
            return dim, inner[len(inner) // 2]
    raise AssertionError("expected: a tensor from make() that can be cut: two blocks or more")


def _narrow(tensor: torch.Tensor, dim: int, start: int, stop: int) -> VersionedTensor:
    return own(tensor.narrow(dim, start, stop - start))
