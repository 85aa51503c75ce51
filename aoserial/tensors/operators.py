"""Decorators that enter functions into the tables of `VersionedTensor`, and what views share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import return_and_correct_aliasing

from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.dispatch import made_as

_Function = TypeVar("_Function", bound=Callable[..., Any])


def operator(*aten_ops: Any) -> Callable[[_Function], _Function]:
    """Decorates a function of an aten operator's own arguments."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements(aten_ops)(
            lambda _func, _types, args, kwargs: function(*args, **kwargs)
        )
        return function

    return enter


def view_operator(*aten_ops: Any) -> Callable[[_Function], _Function]:
    """The same for a view: torch is told that the result shares the storage of the argument."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements(aten_ops)(
            lambda func, _types, args, kwargs: as_view(func, args, kwargs, function)
        )
        return function

    return enter


def torch_function(*functions: Any) -> Callable[[_Function], _Function]:
    """Decorates a function of the own arguments of a torch function."""

    def enter(function: _Function) -> _Function:
        VersionedTensor.implements_torch_function(functions)(
            lambda _func, _types, args, kwargs: function(*args, **kwargs)
        )
        return function

    return enter


def as_view(
    aten_op: Any, args: tuple[Any, ...], kwargs: dict[str, Any], function: Callable[..., Any]
) -> Any:
    """What `function` makes of the arguments, known to torch as that operator's view of them."""
    with made_as(args[0]):
        return return_and_correct_aliasing(  # type: ignore[no-untyped-call]
            aten_op, args, kwargs, function(*args, **kwargs)
        )


def view_of(part: torch.Tensor, aten_op: Any, *args: Any) -> torch.Tensor:
    """A view of a part that counts writes together with it.

    Versions are shared by a layer of torch's dispatcher that is off below `__torch_dispatch__`. A
    view made without it would not know of writes to the whole, nor the whole of those to the view,
    and what is packed of either would grow stale. Compilers trace without.
    """
    if torch.compiler.is_compiling():
        return aten_op(part, *args)  # type: ignore[no-any-return]
    with torch._C._SetExcludeDispatchKeyGuard(torch._C.DispatchKey.ADInplaceOrView, False):
        return aten_op(part, *args)  # type: ignore[no-any-return]


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """The plain tensor that this one stands for, itself if it is one."""
    return tensor.dequantize() if isinstance(tensor, VersionedTensor) else tensor


def lend(view: VersionedTensor, names: frozenset[str]) -> VersionedTensor:
    """The view, with the names of parts it shares with the rest of the tensor it is a view of."""
    if names:
        view._borrowed = names
    return view


def same_memory(left: torch.Tensor, right: torch.Tensor | None) -> bool:
    """Whether two plain tensors are the same bytes, seen in the same way."""
    if right is None or left is right:
        return left is right
    seen = [(part.shape, part.stride(), part.storage_offset()) for part in (left, right)]
    # by identity, since storages on the meta device have no addresses
    first, second = (
        StorageWeakRef(part.untyped_storage())  # type: ignore[no-untyped-call]
        for part in (left, right)
    )
    return seen[0] == seen[1] and first == second
