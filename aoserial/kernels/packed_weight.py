"""A weight of which only the packed form is left: a parameter that can be multiplied by."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
import torch.nn.functional as F  # noqa: N812

from aoserial.errors import PackingError, UnsupportedOperationError
from aoserial.kernels.api import check_activation, is_traced
from aoserial.kernels.autocast import as_autocast, without_autocast
from aoserial.kernels.backend import Backend, Packed, Run
from aoserial.kernels.gradient import eager_layer
from aoserial.kernels.operators import keep_for_gradient, operator_gradient
from aoserial.kernels.registry import BACKENDS
from aoserial.kernels.spec import Weight
from aoserial.kernels.text import packed_of, packed_text
from aoserial.storage.dtypes import torch_dtype

aten = torch.ops.aten


class Flattening(Protocol):
    """A tensor that torch can take apart and put together, as `__tensor_flatten__` has it."""

    def __tensor_flatten__(self) -> tuple[list[str], Any]: ...


@dataclass(frozen=True, slots=True)
class Origin:
    """How to put the canonical tensor together again: its class, and what is no part of a weight.

    Attributes:
        metadata: what `__tensor_flatten__` gave; it compares and hashes.
        others: the names of tensors that the weight's spec does not list.
    """

    cls: Any
    metadata: Any
    others: tuple[str, ...]


class PackedWeight(torch.Tensor):
    """[N, K], packed for one backend. It is multiplied by, and unpacked; nothing else.

    Packed forms are never saved, sharded or sliced: whatever is not a product says to unpack first,
    by `unpack()` or, for a whole model, `aoserial.kernels.restore(model)`.

    Attributes:
        backend: the backend's name.
        packed: the weight in its form.
        origin: what it was.
        text: all of it but the tensors, by `packed_text`.
        run: the backend's layer by it, once it has been multiplied by.
    """

    backend: str
    packed: Packed
    origin: Origin
    text: str
    run: Run | None

    @staticmethod
    def __new__(
        cls,
        backend: str,
        packed: Packed,
        origin: Origin,
        others: Mapping[str, torch.Tensor],
    ) -> PackedWeight:
        held = {**packed.parts, **others}
        tensor: PackedWeight = torch.Tensor._make_wrapper_subclass(
            cls,
            packed.spec.shape,
            dtype=torch_dtype(packed.spec.dtype),
            device=next(iter(held.values())).device,
        )
        tensor.backend, tensor.packed, tensor.origin = backend, packed, origin
        tensor.text, tensor.run = packed_text(backend, packed), None
        for name, part in held.items():
            setattr(tensor, _slot(name), part)
        return tensor

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `__new__` sets the fields."""

    def unpack(self) -> torch.Tensor:
        """The canonical tensor, of the same bytes."""
        parts = dict(_backend(self.backend).unpack(self.packed).parts)
        parts |= {name: getattr(self, _slot(name)) for name in self.origin.others}
        tensor: torch.Tensor = self.origin.cls.__tensor_unflatten__(
            parts, self.origin.metadata, self.shape, self.stride()
        )
        return tensor

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is F.linear:
            return _linear(*args, **(kwargs or {}))
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        func: Any,
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is aten.linear.default:
            return _linear(*args, **(kwargs or {}))
        if func in (aten.detach.default, aten.alias.default):  # what makes a parameter of it
            return args[0].same()
        raise UnsupportedOperationError(
            f"a packed weight has no {func}: unpack first, by .unpack() or "
            f"aoserial.kernels.restore(model)"
        )

    def same(self) -> PackedWeight:
        """Another tensor of the same memory."""
        others = {name: getattr(self, _slot(name)) for name in self.origin.others}
        return PackedWeight(self.backend, self.packed, self.origin, others)

    def share_memory_(self) -> Self:
        """Moves the packed parts to shared memory. (The wrapper has no storage to move.)"""
        for part in self._held():
            part.share_memory_()  # type: ignore[no-untyped-call]
        return self

    def is_shared(self) -> bool:
        return all(part.is_shared() for part in self._held())  # type: ignore[no-untyped-call]

    def _held(self) -> Iterator[torch.Tensor]:
        return (getattr(self, name) for name in self.__tensor_flatten__()[0])

    def __tensor_flatten__(self) -> tuple[list[str], tuple[str, Origin]]:
        """For compilers: the packed parts, and the rest."""
        names = (*self.packed.parts, *self.origin.others)
        return [_slot(name) for name in names], (self.text, self.origin)

    @classmethod
    def __tensor_unflatten__(
        cls,
        inner_tensors: Mapping[str, torch.Tensor],
        metadata: tuple[str, Origin],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> PackedWeight:
        del outer_size, outer_stride
        text, origin = metadata
        told = packed_of(text)
        parts = {name: inner_tensors[_slot(name)] for name in told.parts}
        others = {name: inner_tensors[_slot(name)] for name in origin.others}
        return cls(told.backend, told.packed(parts), origin, others)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuses to be pickled."""
        raise UnsupportedOperationError(
            "a packed weight is never saved: unpack first, by .unpack() or "
            "aoserial.kernels.restore(model)"
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        del tensor_contents
        spec = self.packed.spec
        return (
            f"PackedWeight({list(self.shape)}, {spec.dtype}, {spec.kind} for {self.backend} "
            f"({self.packed.layout}))"
        )


def packed_weight(
    tensor: Flattening, weight: Weight, backend: Backend, packed: Packed
) -> PackedWeight:
    """What to put in the place of a tensor whose weight has been packed.

    Raises:
        PackingError: unpacking does not give the very bytes that were packed.
    """
    found = backend.unpack(packed)
    for name, part in weight.parts.items():
        if not _same_bytes(part, found.parts[name]):
            raise PackingError(
                f"{backend.name} does not give back the {name} it was given, so the weight is kept"
            )
    names, metadata = tensor.__tensor_flatten__()
    others = {name: getattr(tensor, name) for name in names if name not in weight.parts}
    origin = Origin(type(tensor), metadata, tuple(others))
    return PackedWeight(backend.name, packed, origin, others)


@torch.library.custom_op("aoserial::packed_linear", mutates_args=())
def packed_linear(
    x: torch.Tensor, parts: list[torch.Tensor], weight: str, bias: torch.Tensor | None
) -> torch.Tensor:
    """`F.linear` by a packed weight.

    Args:
        x: [..., K], floating point.
        parts: of the packed form, in its order.
        weight: all of it but the tensors, by `packed_text`.
        bias: [N].
    """
    run = _backend(packed_of(weight).backend).bind(_packed(parts, weight))
    return without_autocast(run, x, bias)


@packed_linear.register_fake
def _shape(
    x: torch.Tensor, parts: list[torch.Tensor], weight: str, bias: torch.Tensor | None
) -> torch.Tensor:
    del parts, bias
    return x.new_empty((*x.shape[:-1], packed_of(weight).spec.shape[-2]))


def _unpacked(parts: list[torch.Tensor], text: str) -> Weight:
    return _backend(packed_of(text).backend).unpack(_packed(parts, text))


packed_linear.register_autograd(
    lambda ctx, grad: operator_gradient(ctx, grad, _unpacked), setup_context=keep_for_gradient
)


def _linear(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None = None,
) -> torch.Tensor:
    if isinstance(input, PackedWeight) or not isinstance(weight, PackedWeight):
        raise UnsupportedOperationError("linear takes a packed weight as its weight only")
    packed = weight.packed
    check_activation(input, packed.spec, bias, device=weight.device)
    parts = list(packed.parts.values())
    if is_traced(input, *parts):
        y: torch.Tensor = packed_linear(as_autocast(input), parts, weight.text, bias)
        return y
    backend = _backend(weight.backend)
    if weight.run is None:
        weight.run = backend.bind(packed)
    return eager_layer(weight.run, lambda: backend.unpack(packed), input, bias, parts=parts)


def _packed(parts: list[torch.Tensor], text: str) -> Packed:
    told = packed_of(text)
    return told.packed(dict(zip(told.parts, parts, strict=True)))


def _backend(name: str) -> Backend:
    return BACKENDS.named(name)


def _slot(name: str) -> str:
    """The attribute that holds a part: one that no attribute of torch.Tensor is called."""
    return f"part_{name}"


def _same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.shape != right.shape or left.dtype != right.dtype:
        return False
    return torch.equal(
        left.contiguous().reshape(-1).view(torch.uint8),
        right.contiguous().reshape(-1).view(torch.uint8),
    )
