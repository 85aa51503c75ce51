"""What values take in memory, for the budget of objects. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from aoserial.storage.pickle.tensors import ArrayPart, TorchTensor
from aoserial.storage.pickle.values import (
    Name,
    Rebuilt,
    StateDict,
    TorchDevice,
    TorchSize,
    Value,
)

# What counts as one object: a small list takes so much, and so do most values here.
OBJECT_BYTES = 110

# Bytes of an entry, when the table has just grown and there is a `Key` to each
_SET_ENTRY = 145
_DICT_ENTRY = 145

# Bytes beyond those, by type: of what a value is filled with. A call may copy it from an argument
# that a thousand other calls have as well, each in a few bytes of the pickle.
_FILLING: dict[type, Callable[[Any], int]] = {
    bytes: len,
    bytearray: len,
    set: lambda items: _SET_ENTRY * len(items),
    frozenset: lambda items: _SET_ENTRY * len(items),
    StateDict: lambda pairs: _DICT_ENTRY * len(pairs),
    TorchSize: lambda size: 8 * len(size),
    Name: lambda name: 4 * len(name.name),
    TorchDevice: lambda device: 4 * len(device.type),
    Rebuilt: lambda rebuilt: 8 * len(rebuilt.arguments),
    ArrayPart: lambda array: len(array.data),
    TorchTensor: lambda _: 450,  # the dict of its fields, and the part of its codes
}

# The types whose values can count for more than one
FILLED = frozenset(_FILLING)


def weight(value: Value) -> int:
    """How many objects a value counts for that a call made."""
    filling = _FILLING.get(type(value))
    return 1 if filling is None else 1 + filling(value) // OBJECT_BYTES
