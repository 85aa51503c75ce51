"""Tables of what a tensor subclass does under an operator, inherited from class to class."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias, TypeVar

# (operator or function, types, args, kwargs) → result, as torch's two protocols call them
Handler: TypeAlias = Callable[[Any, Any, tuple[Any, ...], dict[str, Any]], Any]
_Handler = TypeVar("_Handler", bound=Handler)

ATEN_TABLE = "_aten_handlers"
FUNCTION_TABLE = "_function_handlers"


def add(cls: type, table: str, targets: object) -> Callable[[_Handler], _Handler]:
    """A decorator that enters a handler for one operator, or several, in a table of `cls`."""
    if table not in vars(cls):
        setattr(cls, table, {})
    handlers: dict[Any, Handler] = vars(cls)[table]
    each: Iterable[object] = targets if isinstance(targets, list | tuple) else (targets,)

    def enter(handler: _Handler) -> _Handler:
        handlers.update(dict.fromkeys(each, handler))
        return handler

    return enter


def find(cls: type, table: str, target: object) -> Handler | None:
    """The handler of the nearest class that has one."""
    for base in cls.__mro__:
        handler: Handler | None = vars(base).get(table, {}).get(target)
        if handler is not None:
            return handler
    return None
