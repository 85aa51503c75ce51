"""Where in a tree a value is, for error messages. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from aoserial.storage.pickle.paths import children, step
from aoserial.storage.pickle.tensors import TensorSubclass, TorchTensor, WrapperSubclass
from aoserial.storage.pickle.values import ObjectValue, Value


def path_to(root: Value, target: Value) -> str | None:
    """The dotted name of a value, by identity; None when it is the root, or not to be found."""
    seen: set[int] = set()
    waiting = [("", root)]
    while waiting:
        name, value = waiting.pop()
        if value is target:
            return name or None
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(reversed(list(_inside(name, value))))
    return None


def _inside(name: str, value: Value) -> Iterator[tuple[str, Value]]:
    prefix = f"{name}." if name else ""
    named: Iterable[tuple[Value, Value]] = ()
    if isinstance(value, list | tuple):
        named = enumerate(value)
    elif isinstance(value, dict):
        named = value.items()
    elif isinstance(value, ObjectValue | WrapperSubclass | TensorSubclass | TorchTensor):
        named = value.fields.items()
    for key, child in named:
        yield f"{prefix}{step(key)}", child
    for child in children(value):
        yield name, child
