"""What a pickle holds, as plain typed values. Torch-free; nothing here runs or imports anything.

None, bool, int, float, complex, str, bytes, list, tuple, dict and set appear as themselves, an
OrderedDict as a `StateDict`, tensors as the classes of `tensors`. All else is one of the classes
here: each says what the file says, so that nothing is lost and nothing is trusted.

A tuple here can be deep and share its parts: do not hash or compare one that a stranger wrote.
"""

from __future__ import annotations

import itertools
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, TypeAlias

from aoserial.errors import escape

# Any of the classes above and below; consumers match on the type.
Value: TypeAlias = Any

SCALARS = frozenset({NoneType, bool, int, float, str, bytes})


@dataclass(frozen=True, slots=True)
class Name:
    """A function or class, by the name under which pickle would import it."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"

    def __str__(self) -> str:
        return escape(self.path)

    def __repr__(self) -> str:
        return f"<{self}>"


@dataclass(frozen=True, slots=True)
class TorchDtype:
    """A `torch.dtype`: `"bfloat16"`."""

    name: str


@dataclass(frozen=True, slots=True)
class TorchLayout:
    """A `torch.layout`: `"strided"`."""

    name: str


@dataclass(frozen=True, slots=True)
class TorchDevice:
    """A `torch.device`: `"cuda"` and 0, or `"cpu"` and None."""

    type: str
    index: int | None = None

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"


class TorchSize(tuple[int, ...]):
    """A `torch.Size`."""

    __slots__ = ()


class StateDict(OrderedDict[Value, Value]):
    """An OrderedDict.

    Attributes:
        attributes: what was set on the dict itself; a module's has `_metadata`.
    """

    attributes: Value = None


_NUMBERS = itertools.count()


class Key:
    """A key of a dict, or a member of a set, that is not hashed here: a tuple, a name, an object.

    Tuples of ints can be made to collide by the thousand, and a dict of them would take quadratic
    time. Each `Key` is equal to itself alone.

    Attributes:
        value: the key or member.
        number: later ones have greater ones, so that the members of a set keep an order.
    """

    __slots__ = ("number", "value")

    def __init__(self, value: Value) -> None:
        self.value = value
        self.number = next(_NUMBERS)

    def __repr__(self) -> str:
        return f"<Key, {type(self.value).__name__}>"


@dataclass(frozen=True, slots=True)
class EnumValue:
    """What an enum's member pickles to: a class called with one str or int.

    Whether the class is an enum, the file does not say.
    """

    cls: Name
    value: int | str

    @property
    def path(self) -> str:
        return self.cls.path


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """A `functools.partial`; `attributes` are those that somebody set on it, mostly none."""

    function: Value
    arguments: tuple[Value, ...]
    keywords: dict[Value, Value]
    attributes: dict[Value, Value] | None


@dataclass(frozen=True, slots=True, eq=False)
class Rebuilt:
    """A call of `aoserial._rebuild(type id, version, …)`: what our own tensors pickle to."""

    type: str
    version: int
    arguments: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class ExtensionCode:
    """An entry of copyreg's extension registry, which only the writing process knew."""

    code: int


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A persistent id that is no storage of the file."""

    id: Value


class ObjectValue:
    """Any other object: how it would be made, and what it would be filled with. Inert.

    Attributes:
        kind: how it would be made: `reduce` calls `function`, the others (`newobj`, `newobj_ex`,
            `inst`, `obj`) make an instance of the class `function`.
        function: a `Name`, unless somebody was very clever.
        origin: the function, or where that is an object, too, the origin of it.
        arguments: of that call; a tuple, unless the file has another object in its place.
        keywords: of that call.
        states: what BUILD would set it to: its `__dict__`, or a pair of that and its slots, or
            whatever its `__setstate__` takes. Mostly one or none.
        items: what would be appended or added to it.
        pairs: keys and values that would be set on it.
    """

    # Empty tuples, until there is something: most objects have one of these three
    states: Sequence[Value]
    items: Sequence[Value]
    pairs: Sequence[tuple[Value, Value]]

    __slots__ = ("arguments", "function", "items", "keywords", "kind", "origin", "pairs", "states")

    def __init__(
        self, kind: str, function: Value, arguments: Value, keywords: dict[Value, Value] | None
    ) -> None:
        self.kind = kind
        self.function = function
        self.origin: Value = function.origin if type(function) is ObjectValue else function
        self.arguments = arguments
        self.keywords = keywords
        self.states = self.items = self.pairs = ()

    @property
    def path(self) -> str:
        """The dotted path of its class, or of the function that would make it."""
        if isinstance(self.function, Name):
            return self.function.path
        # no more of it: it may be an object of an object, a thousand deep
        return f"<{type(self.function).__name__}>"

    @property
    def fields(self) -> dict[str, Value]:
        """Its attributes, where its state is a plain `__dict__`, with or without slots."""
        return fields_of(*self.states)

    def __repr__(self) -> str:
        fields = escape(", ".join(list(self.fields)[:8]))
        return f"<{escape(self.path[:120])}, inert{': ' if fields else ''}{fields[:200]}>"


def fields_of(*states: Value) -> dict[str, Value]:
    """The attributes that these states set: of each the dict, and the dict of slots beside it."""
    fields: dict[str, Value] = {}
    for state in states:
        for part in state if type(state) is tuple and len(state) == 2 else (state,):
            if isinstance(part, dict):
                fields |= {key: value for key, value in part.items() if type(key) is str}
    return fields
