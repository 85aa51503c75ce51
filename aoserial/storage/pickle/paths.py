"""Ways through a tree of values: to every tensor, and how deep it is. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.modules import module_members
from aoserial.storage.pickle.tensors import (
    TENSORS,
    ArrayPart,
    ParameterValue,
    StoragePart,
    TensorSubclass,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
)
from aoserial.storage.pickle.values import (
    EnumValue,
    Key,
    Name,
    ObjectValue,
    Partial,
    Rebuilt,
    Reference,
    StateDict,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    Value,
)


def children(value: Value) -> list[Value]:
    """The values inside a value: of an object, those in the dict that is its state."""
    inside = _INSIDE.get(type(value))
    return [] if inside is None else inside(value)


def _opaque(keys: Iterable[Value]) -> list[Value]:
    """Keys and members in which something can be; the others are scalars."""
    return [key for key in keys if type(key) is Key]


def _in_dict(value: dict[Value, Value]) -> list[Value]:
    # the keys of nearly all dicts are texts, and Key is none
    found = list(value.values())
    return found if set(map(type, value)) == {str} else found + _opaque(value)


def _in_state(state: Value) -> list[Value]:
    """A state is nearly always a dict that nobody else has: what counts is what lies in it."""
    return _in_dict(state) if type(state) is dict else [state]


def _in_object(value: ObjectValue) -> list[Value]:
    found = [value.function, value.arguments, *value.items]
    if value.keywords is not None:
        found.append(value.keywords)
    for state in value.states:
        found.extend(_in_state(state))
    for pair in value.pairs:
        found.extend(pair)
    return found


_INSIDE: dict[type, Callable[[Any], list[Value]]] = {
    dict: _in_dict,
    StateDict: lambda value: [*value.values(), value.attributes, *_opaque(value)],
    list: list,
    tuple: list,
    set: _opaque,
    frozenset: _opaque,
    Key: lambda value: [value.value],
    ObjectValue: _in_object,
    WrapperSubclass: lambda value: _in_state(value.state),
    TensorSubclass: lambda value: [value.data, *_in_state(value.state)],
    ParameterValue: lambda value: [value.data, *_in_state(value.state)],
    TorchTensor: lambda value: list(value.fields.values()),
    Partial: lambda value: [value.function, value.arguments, value.keywords, value.attributes],
    Rebuilt: lambda value: [value.arguments],
    Reference: lambda value: [value.id],
}

# Types of which nothing is inside: most of what there is
_LEAVES = frozenset(
    {str, int, float, bool, complex, type(None), bytes, bytearray, TorchSize}
    | {StoragePart, ArrayPart, TypedStorage, Name, EnumValue, TorchDtype, TorchLayout, TorchDevice}
)


def check_depth(root: Value, limits: Limits) -> None:
    """Raises `LimitError` when values lie too deep inside each other for recursive readers.

    The depth is that of the longest way down; a way back up, in a cycle, counts for nothing.
    """
    depths: dict[int, int] = {}  # of the values seen: 0 while they are being looked at
    way: list[tuple[int, Iterator[Value]]] = []
    deepest: list[int] = [0]  # found so far below each value on the way
    inside: Iterator[Value] = iter((root,))
    deepest_allowed = limits.depth
    while True:
        for child in inside:
            if type(child) in _LEAVES:
                continue
            key = id(child)
            depth = depths.get(key)
            if depth is None:
                depths[key] = 0
                way.append((key, inside))
                if len(way) > deepest_allowed:
                    limits.check("depth", len(way))
                deepest.append(0)
                inside = iter(children(child))
                break
            deepest[-1] = max(deepest[-1], depth)
        else:
            if not way:
                return
            key, inside = way.pop()
            depth = deepest.pop() + 1
            depths[key] = depth
            deepest[-1] = max(deepest[-1], depth)
            if depth > deepest_allowed:
                limits.check("depth", depth)


# Tensors, and the containers that are entered to find them
_LISTED = frozenset({*TENSORS, dict, StateDict, list, tuple, ObjectValue})
_NOTHING_INSIDE = _LEAVES - {StoragePart, ArrayPart}


def named_tensors(
    root: Value, limits: Limits, passed: Callable[[str, ObjectValue], object] | None = None
) -> Iterator[tuple[str, Any]]:
    """Every tensor in the dicts, lists, tuples and modules of a tree by dotted name, in order.

    What lies inside other objects belongs to them and is not listed. A container that is in the
    tree twice has its tensors listed twice; one that contains itself, once.

    Args:
        passed: called with the name of each object that is not entered.

    Raises:
        LimitError: there are too many names.
    """
    # (name, value, what had been found before it; None when it was not entered yet)
    waiting: list[tuple[str, Value, tuple[int, int] | None]] = [("", root, None)]
    above: set[int] = set()
    barren: set[int] = set()  # without a tensor: not entered again
    found = loops = 0
    while waiting:
        name, value, entered = waiting.pop()
        key = id(value)
        if entered is not None:
            above.discard(key)
            if entered == (found, loops):
                barren.add(key)
        elif type(value) in TENSORS:
            found += 1
            limits.check("tensors", found)
            yield name, value
        elif key in above:
            loops += 1
        elif key not in barren:
            steps = _steps(value)
            if steps is None:
                if passed is not None and type(value) is ObjectValue:
                    passed(name, value)
                continue
            above.add(key)
            waiting.append((name, value, (found, loops)))
            prefix = f"{name}." if name else ""
            waiting.extend(
                (f"{prefix}{step(key)}", child, None)
                for key, child in reversed(list(steps))
                if type(child) in _LISTED
            )


def _steps(value: Value) -> Iterable[tuple[Value, Value]] | None:
    """What is entered of a value, by key; None for a value that is not entered."""
    if isinstance(value, dict):
        return value.items()
    if type(value) in (list, tuple):
        return enumerate(value)
    return module_members(value)


def tensors_inside(value: Value) -> int:
    """How many tensors there are anywhere inside a value."""
    seen: set[int] = set()
    waiting, found = [value], 0
    while waiting:
        child = waiting.pop()
        if id(child) in seen or type(child) in _NOTHING_INSIDE:
            continue
        seen.add(id(child))
        if type(child) in TENSORS:
            found += 1
        else:
            waiting.extend(children(child))
    return found


def step(key: Value) -> str:
    """A key as a step of a dotted name."""
    return key.decode(errors="backslashreplace") if isinstance(key, bytes) else str(key)
