"""A weight seen in another shape: on its way into a product, or out of the way. Never stored."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Self

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import make_wrapper
from aoserial.tensors.dispatch import decomposed, made_as

aten = torch.ops.aten


class Reshaped(torch.Tensor):
    """A tensor of another shape that keeps the weight as it is, with the few operators it needs.

    Whatever goes back to the weight's own shape gives the weight itself.

    Attributes:
        weight: what it stands for.
        handlers: its operators, each a function of the operator's own arguments.
        called: what `repr` shows behind the weight.
    """

    weight: VersionedTensor
    handlers: ClassVar[Mapping[Any, Callable[..., Any]]]
    called: ClassVar[str]

    def __new__(cls, weight: VersionedTensor, shape: Sequence[int], strides: Sequence[int]) -> Self:
        with made_as(weight):
            tensor = make_wrapper(
                cls, shape, strides=strides, dtype=weight.dtype, device=weight.device
            )
        tensor.weight = weight  # type: ignore[attr-defined]
        return tensor  # type: ignore[return-value]

    def __init__(self, weight: VersionedTensor, *_: Any) -> None:
        """Does nothing: `__new__` keeps the weight."""

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        del types
        handler = cls.handlers.get(func) or _COMMON.get(func)
        if handler is not None:
            return handler(*args, **(kwargs or {}))
        otherwise = f"a quantized tensor has no {func} behind {cls.called}"
        return decomposed(func, args, kwargs or {}, otherwise=otherwise)

    def with_weight(self, weight: VersionedTensor) -> Self:
        """The same of another weight of that shape."""
        return type(self)(weight, self.shape, self.stride())

    def __tensor_flatten__(self) -> tuple[list[str], None]:
        """For compilers: the weight is all there is."""
        return ["weight"], None

    @classmethod
    def __tensor_unflatten__(
        cls,
        inner_tensors: Mapping[str, Any],
        metadata: None,
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> Self:
        del metadata
        return cls(inner_tensors["weight"], outer_size, outer_stride)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        del tensor_contents
        return f"{self.weight!r}{self.called}"


class Flat(Reshaped):
    """`w.view(-1)`: how FSDP keeps a shard in view, and never reads it. It has no values."""

    called = ".view(-1)"
    handlers: ClassVar[Mapping[Any, Callable[..., Any]]]

    @classmethod
    def of(cls, weight: VersionedTensor) -> Flat:
        return cls(weight, (weight.numel(),), (1,))


def full_size(size: Sequence[int], count: int) -> list[int]:
    """A size of `count` elements, with the length that -1 leaves open filled in."""
    known = math.prod(length for length in size if length != -1)
    return [count // max(known, 1) if length == -1 else length for length in size]


def _same_view(seen: Reshaped, size: Sequence[int]) -> torch.Tensor:
    if full_size(size, seen.numel()) != list(seen.shape):
        raise UnsupportedOperationError(
            f"a quantized tensor behind {seen.called} has no view of shape {list(size)}"
        )
    return seen.with_weight(aten.alias.default(seen.weight))


def _unflatten(flat: Flat, size: Sequence[int]) -> torch.Tensor:
    if full_size(size, flat.numel()) != list(flat.weight.shape):
        return _same_view(flat, size)
    return aten.alias.default(flat.weight)  # type: ignore[no-any-return]


_COMMON: dict[Any, Callable[..., Any]] = {
    aten.detach.default: lambda seen: seen.with_weight(seen.weight.detach()),
    aten.alias.default: lambda seen: seen.with_weight(aten.alias.default(seen.weight)),
    aten.view.default: _same_view,
    aten._unsafe_view.default: _same_view,
}
Flat.handlers = {aten.view.default: _unflatten}
