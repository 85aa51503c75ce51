"""A copy of a tree with other leaves: sharing and cycles stay as they are. Torch-free.

One way down, without recursion. What can be filled later (a dict, an object) is made empty when it
is met, and filled at the end; what cannot (a tuple) is made when all in it is there. So a tuple in
a list in that same tuple comes out as it went in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from aoserial.storage.pickle.tensors import (
    ParameterValue,
    TensorSubclass,
    TorchTensor,
    WrapperSubclass,
)
from aoserial.storage.pickle.values import (
    Key,
    ObjectValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    Value,
)

# What stands in the place of a value, or `STAYS` when that depends on what it is
Leaf: TypeAlias = Callable[[Value], Any]
Look: TypeAlias = Callable[[Value], Any]  # the copy of a value inside

STAYS = object()


def copy_tree(
    root: Value, leaf: Leaf, empty: Mapping[type, Callable[[Any], Any]] | None = None
) -> Any:
    """A copy of the tree with `leaf(value)` in the place of each value for which it is not `STAYS`.

    Values that are no containers, and stay, are the same objects in the copy.

    Args:
        empty: container → how its copy is made before it is filled, where that is of another class.
    """
    made = {**_EMPTY, **(empty or {})}
    done: dict[int, Any] = {}
    held: list[Value] = []  # keeps what ids were taken of from being collected
    open_: list[tuple[Value, Any]] = []
    waiting: list[tuple[Value, bool]] = [(root, False)]
    begun: set[int] = set()

    def look(value: Value) -> Any:
        return done.get(id(value), value)

    while waiting:
        value, entered = waiting.pop()
        key = id(value)
        if entered:
            done[key] = _BUILD[type(value)](value, look)
            continue
        if key in done or key in begun:
            continue
        begun.add(key)
        held.append(value)
        copied = leaf(value)
        kind = type(value)
        if copied is not STAYS:
            done[key] = copied
        elif kind in made:
            done[key] = made[kind](value)
            open_.append((value, done[key]))
            waiting.extend((child, False) for child in reversed(_INSIDE[kind](value)))
        elif kind in _BUILD:
            waiting.append((value, True))
            waiting.extend((child, False) for child in reversed(_INSIDE[kind](value)))
    for value, copy in reversed(open_):  # inner ones first: attributes are set from a full dict
        _FILL[type(value)](copy, value, look)
    return look(root)


def _blank(value: Value) -> Value:
    """An object of the same class with the same slots; those with values inside are set later."""
    copy = object.__new__(type(value))
    for cls in type(value).__mro__:
        for name in getattr(cls, "__slots__", ()):
            setattr(copy, name, getattr(value, name))
    return copy


def _fill_dict(copy: dict[Value, Any], value: dict[Value, Value], look: Look) -> None:
    for key, item in value.items():
        copy[look(key) if type(key) is Key else key] = look(item)


def attributes_of(value: OrderedDict[Value, Value]) -> Value:
    """What was set on the dict itself; a module's state dict has `_metadata`."""
    held = value.attributes if isinstance(value, StateDict) else vars(value)
    return held or None


def _fill_ordered(copy: Any, value: OrderedDict[Value, Value], look: Look) -> None:
    _fill_dict(copy, value, look)
    attributes = attributes_of(value)
    if isinstance(copy, StateDict):
        copy.attributes = look(attributes)
    elif attributes is not None:
        vars(copy).update(look(attributes))


def _fill_object(copy: ObjectValue, value: ObjectValue, look: Look) -> None:
    copy.function, copy.arguments = look(value.function), look(value.arguments)
    copy.keywords = look(value.keywords)
    copy.states = [look(state) for state in value.states]
    copy.items = [look(item) for item in value.items]
    copy.pairs = [(look(key), look(item)) for key, item in value.pairs]


def _fill_slots(*names: str) -> Callable[[Any, Any, Look], None]:
    def fill(copy: Any, value: Any, look: Look) -> None:
        for name in names:
            setattr(copy, name, look(getattr(value, name)))

    return fill


def _inside_object(value: ObjectValue) -> list[Value]:
    pairs = [part for pair in value.pairs for part in pair]
    return [value.function, value.arguments, value.keywords, *value.states, *value.items, *pairs]


def _inside_dict(value: dict[Value, Value]) -> list[Value]:
    return [*(key for key in value if type(key) is Key), *value.values()]


def _inside_ordered(value: OrderedDict[Value, Value]) -> list[Value]:
    return [*_inside_dict(value), attributes_of(value)]


def _keys(value: Iterable[Value]) -> list[Value]:
    return [item for item in value if type(item) is Key]


# Containers that can be made empty: how, what is in them, and how they are filled
_EMPTY: dict[type, Callable[[Any], Any]] = {
    dict: lambda _: {},
    StateDict: lambda _: StateDict(),
    OrderedDict: lambda _: StateDict(),
    list: lambda _: [],
    set: lambda _: set(),
    ObjectValue: _blank,
    WrapperSubclass: _blank,
    TensorSubclass: _blank,
    ParameterValue: _blank,
    TorchTensor: _blank,
}

_FILL: dict[type, Callable[[Any, Any, Look], None]] = {
    dict: _fill_dict,
    StateDict: _fill_ordered,
    OrderedDict: _fill_ordered,
    list: lambda copy, value, look: copy.extend(map(look, value)),
    set: lambda copy, value, look: copy.update(map(look, value)),
    ObjectValue: _fill_object,
    WrapperSubclass: _fill_slots("state"),
    TensorSubclass: _fill_slots("data", "state"),
    ParameterValue: _fill_slots("data", "state"),
    TorchTensor: _fill_slots("fields"),
}

# Containers that are made at once, of what is in them
_BUILD: dict[type, Callable[[Any, Look], Any]] = {
    tuple: lambda value, look: tuple(map(look, value)),
    frozenset: lambda value, look: frozenset(map(look, value)),
    Key: lambda value, look: Key(look(value.value)),
    Partial: lambda value, look: Partial(
        look(value.function), look(value.arguments), look(value.keywords), look(value.attributes)
    ),
    Rebuilt: lambda value, look: Rebuilt(value.type, value.version, look(value.arguments)),
    Reference: lambda value, look: Reference(look(value.id)),
}

_INSIDE: dict[type, Callable[[Any], list[Value]]] = {
    dict: _inside_dict,
    StateDict: _inside_ordered,
    OrderedDict: _inside_ordered,
    list: list,
    set: _keys,
    ObjectValue: _inside_object,
    WrapperSubclass: lambda value: [value.state],
    TensorSubclass: lambda value: [value.data, value.state],
    ParameterValue: lambda value: [value.data, value.state],
    TorchTensor: lambda value: [value.fields],
    tuple: list,
    frozenset: _keys,
    Key: lambda value: [value.value],
    Partial: lambda value: [value.function, value.arguments, value.keywords, value.attributes],
    Rebuilt: lambda value: [value.arguments],
    Reference: lambda value: [value.id],
}
