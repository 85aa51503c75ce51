"""When two tensors of a pickle are alike: equal but for their bytes. Torch-free.

A model has thousands of tensors with the same fields. They are looked through once each, for a key
as cheap as can be; what equal keys stand for is worked out once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from aoserial.storage.pickle import (
    EnumValue,
    Name,
    ObjectValue,
    Rebuilt,
    StateDict,
    StoragePart,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    WrapperSubclass,
)

# Larger ones are worked out one by one
_MAX_KEY = 2_000


def likeness(value: Any) -> tuple[Hashable, list[StoragePart]] | None:
    """A key that is equal for tensors that are alike, and the plain tensors inside, in order.

    Returns:
        None for a tensor that has something rare in it.
    """
    key: list[Any] = []
    parts: list[StoragePart] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        kind = type(item)
        if kind in _WHOLE:
            key += (kind, item)  # with its class, since 1, 1.0 and True are equal
        elif kind is StoragePart:
            key += (kind, item.dtype, item.shape)
            parts.append(item)
        elif kind is float:
            key += (kind, repr(item))  # since 0.0 and -0.0 are equal
        else:
            inside = _INSIDE.get(kind)
            if inside is None or len(key) > _MAX_KEY:
                return None
            items = inside(item, key)
            key += (kind, len(items))
            waiting += reversed(items)
    return tuple(key), parts


def _dict(value: dict[Any, Any], key: list[Any]) -> list[Any]:
    key += (*value, *map(type, value))
    return list(value.values())


def _wrapper(value: WrapperSubclass, key: list[Any]) -> list[Any]:
    key += (value.cls, value.dtype, value.shape, value.stride)
    return [value.state]


def _object(value: ObjectValue, key: list[Any]) -> list[Any]:
    key += (value.kind, len(value.states), len(value.items), len(value.pairs))
    pairs = [part for pair in value.pairs for part in pair]
    inner = [value.function, value.arguments, value.keywords, *value.states]
    return [*inner, *value.items, *pairs]


def _ours(value: Rebuilt, key: list[Any]) -> list[Any]:
    key += (value.type, value.version)
    return list(value.arguments)


_WHOLE = frozenset(
    {type(None), bool, int, str, EnumValue, Name, TorchDtype, TorchDevice, TorchLayout, TorchSize}
)

# What is in a value; what else tells it from others is added to the key
_INSIDE: dict[type, Callable[[Any, list[Any]], list[Any]]] = {
    list: lambda value, _: value,
    tuple: lambda value, _: list(value),
    dict: _dict,
    StateDict: lambda value, key: [*_dict(value, key), value.attributes],
    WrapperSubclass: _wrapper,
    ObjectValue: _object,
    Rebuilt: _ours,
}
