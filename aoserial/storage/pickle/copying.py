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
    for value, new in reversed(open_):  # inner ones first: attributes are set from a full dict
        _FILL[type(value)](new, value, look)
    return look(root)


def _wrapper(value: WrapperSubclass) -> WrapperSubclass:
    return WrapperSubclass(
        cls=value.cls,
        dtype=value.dtype,
        shape=value.shape,
        stride=value.stride,
        storage_offset=value.storage_offset,
        layout=value.layout,
        device=value.device,
        requires_grad=value.requires_grad,
    )


def _fill_dict(new: dict[Value, Any], value: dict[Value, Value], look: Look) -> None:
    for key, item in value.items():
        new[look(key) if type(key) is Key else key] = look(item)


def attributes_of(value: OrderedDict[Value, Value]) -> Value:
    """What was set on the dict itself; a module's state dict has `_metadata`."""
    held = value.attributes if isinstance(value, StateDict) else value.__dict__
    return held or None


def _fill_ordered(new: Any, value: OrderedDict[Value, Value], look: Look) -> None:
    _fill_dict(new, value, look)
    attributes = attributes_of(value)
    if isinstance(new, StateDict):
        new.attributes = look(attributes)
    elif attributes is not None:
        new.__dict__.update(look(attributes))


def _fill_object(new: ObjectValue, value: ObjectValue, look: Look) -> None:
    new.function, new.origin = look(value.function), look(value.origin)
    new.arguments = look(value.arguments)
    new.keywords = look(value.keywords)
    new.states = [look(state) for state in value.states]
    new.items = [look(item) for item in value.items]
    new.pairs = [(look(key), look(item)) for key, item in value.pairs]


def _fill_state(new: WrapperSubclass, value: WrapperSubclass, look: Look) -> None:
    new.state = look(value.state)


def _fill_data(new: Any, value: TensorSubclass | ParameterValue, look: Look) -> None:
    new.data, new.state = look(value.data), look(value.state)


def _fill_torch(new: TorchTensor, value: TorchTensor, look: Look) -> None:
    new.fields, new.call = look(value.fields), look(value.call)


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
    ObjectValue: lambda value: ObjectValue(value.kind, value.function, (), None),
    WrapperSubclass: _wrapper,
    TensorSubclass: lambda value: TensorSubclass(value.cls, None, None),
    ParameterValue: lambda value: ParameterValue(None, value.requires_grad),
    TorchTensor: lambda value: TorchTensor(
        value.kind, value.dtype, value.shape, {}, value.requires_grad
    ),
}

_FILL: dict[type, Callable[[Any, Any, Look], None]] = {
    dict: _fill_dict,
    StateDict: _fill_ordered,
    OrderedDict: _fill_ordered,
    list: lambda new, value, look: new.extend(map(look, value)),
    set: lambda new, value, look: new.update(map(look, value)),
    ObjectValue: _fill_object,
    WrapperSubclass: _fill_state,
    TensorSubclass: _fill_data,
    ParameterValue: _fill_data,
    TorchTensor: _fill_torch,
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
    TorchTensor: lambda value: [value.fields, value.call],
    tuple: list,
    frozenset: _keys,
    Key: lambda value: [value.value],
    Partial: lambda value: [value.function, value.arguments, value.keywords, value.attributes],
    Rebuilt: lambda value: [value.arguments],
    Reference: lambda value: [value.id],
}
