"""Tables of what a tensor subclass does under an operator, inherited from class to class."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache
from typing import Any, TypeAlias, TypeVar

import torch
from torch.compiler import is_dynamo_compiling

from aoserial.errors import UnsupportedOperationError

# (operator or function, types, args, kwargs) → result, as torch's two protocols call them
Handler: TypeAlias = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
_Handler = TypeVar("_Handler", bound=Handler)

_ATEN = "_aten_handlers"
_FUNCTIONS = "_function_handlers"


class Dispatching(torch.Tensor):
    """A tensor whose operators are entries in tables of its class and of those it derives from.

    An operator without an entry raises `UnsupportedOperationError`; a torch function without one
    goes on to its operators.
    """

    @classmethod
    def implements(cls, aten_ops: object) -> Callable[[_Handler], _Handler]:
        """Decorates the handler `(op, types, args, kwargs)` of aten operators for this class.

        One whose library may never be imported is given by its name, `namespace.name.overload`.
        """
        return _enter(cls, _ATEN, aten_ops)

    @classmethod
    def implements_torch_function(cls, torch_fns: object) -> Callable[[_Handler], _Handler]:
        """Decorates the handler `(function, types, args, kwargs)` of torch functions."""
        return _enter(cls, _FUNCTIONS, torch_fns)

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        handler = _find(cls, _FUNCTIONS, func)
        if handler is not None:
            return handler(func, types, args, kwargs or {})
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
        handler = _find(cls, _ATEN, func) or _find(cls, _ATEN, str(func))
        if handler is not None:
            return handler(func, types, args, kwargs or {})
        return decomposed(
            func,
            args,
            kwargs or {},
            otherwise=f"{cls.__name__} has no {func}; dequantize() gives a plain tensor that has",
        )


def decomposed(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, otherwise: str) -> Any:
    """What an operator without a handler gives by simpler ones.

    In inference mode torch leaves it to a tensor subclass to take composite operators apart.

    Raises:
        UnsupportedOperationError: it is no composite; the message is `otherwise`.
    """
    made = func.decompose(*args, **kwargs)
    if made is NotImplemented:
        raise UnsupportedOperationError(otherwise)
    return made


def made_as(viewed: torch.Tensor) -> AbstractContextManager[None]:
    """Inference mode, on or off as it has to be for making a view.

    A view counts writes together with what it views, which tensors made in inference mode cannot;
    so there, too, a view of one that was made outside of it is made outside.
    """
    return torch.inference_mode(torch.is_inference_mode_enabled() and viewed.is_inference())


def _enter(cls: type, table: str, targets: object) -> Callable[[_Handler], _Handler]:
    """A decorator that enters a handler for one operator, or several, in a table of `cls`."""
    if table not in vars(cls):
        setattr(cls, table, {})
    handlers: dict[Any, Handler] = vars(cls)[table]
    each: Iterable[object] = targets if isinstance(targets, list | tuple) else (targets,)

    def enter(handler: _Handler) -> _Handler:
        handlers.update(dict.fromkeys(each, handler))
        _found.cache_clear()
        return handler

    return enter


def _find(cls: type, table: str, target: object) -> Handler | None:
    """The handler of the nearest class that has one."""
    if is_dynamo_compiling():  # which traces through no cache
        return _found.__wrapped__(cls, table, target)
    return _found(cls, table, target)


@lru_cache(maxsize=4096)
def _found(cls: type, table: str, target: object) -> Handler | None:
    for base in cls.__mro__:
        handler: Handler | None = vars(base).get(table, {}).get(target)
        if handler is not None:
            return handler
    return None
