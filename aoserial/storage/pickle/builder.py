"""What stands for that which a pickle would import, call or set: inert values. Torch-free.

The interpreter says what the file says to a builder. This one knows nothing, and so makes an inert
value of everything; `recognise.Recogniser` knows torch's functions, `scan.Scanner` keeps a list.
"""

from __future__ import annotations

from types import NoneType

from aoserial.errors import PickleError
from aoserial.storage.pickle.values import (
    EnumValue,
    ExtensionCode,
    Key,
    Name,
    ObjectValue,
    Reference,
    StateDict,
    Value,
)

# Keys and members of these types are hashed here. Python salts the hashes of str and bytes, and of
# the others too few are equal to matter; ints beyond 64 bits are another thing (see `keys`).
_HASHABLE = frozenset({str, bytes, int, float, bool, NoneType})
_STR = {str}


class Builder:
    """Makes inert values.

    Attributes:
        at: the position of the opcode that asks for one.
    """

    at: int = 0

    def forget(self) -> None:
        """Called when the pickle is run again with another builder, as some of it was missing."""

    def name(self, module: str, name: str) -> Value:
        """A global."""
        return Name(module, name)

    def extension(self, code: int) -> Value:
        """An entry of copyreg's extension registry."""
        return ExtensionCode(code)

    def reference(self, id: Value) -> Value:  # noqa: A002 - pickle's own word
        """A persistent id."""
        return Reference(id)

    def call(self, kind: str, function: Value, arguments: Value, keywords: Value = None) -> Value:
        """A call of `function`, or an instance of it; see `ObjectValue` for the kinds."""
        return ObjectValue(kind, function, arguments, keywords)

    def set_state(self, target: Value, state: Value) -> Value:
        """What `target` is once it has that state: itself, or something that takes its place.

        Raises:
            PickleError: nothing of that kind has a state.
        """
        target = opened(target)
        if type(target) is StateDict and target.attributes is None:
            target.attributes = state
        elif type(target) is ObjectValue:
            if type(target.states) is not list:
                target.states = []
            target.states.append(state)
        else:
            raise PickleError(f"the state of {kind_of(target)} is set")
        return target

    def add_items(self, target: Value, items: list[Value]) -> Value:
        """What `target` is once these were appended to it, or added."""
        target = opened(target)
        if type(target) is ObjectValue:
            if type(target.items) is not list:
                target.items = []
            target.items.extend(items)
        else:
            raise PickleError(f"an item is added to {kind_of(target)}")
        return target

    def set_pairs(self, target: Value, pairs: list[Value]) -> Value:
        """What `target` is once these keys and values, in turn, were set on it."""
        target = opened(target)
        if type(target) is StateDict:
            target.update(zip(keys(pairs[::2]), pairs[1::2], strict=True))
        elif type(target) is ObjectValue:
            if type(target.pairs) is not list:
                target.pairs = []
            target.pairs.extend(zip(pairs[::2], pairs[1::2], strict=True))
        else:
            raise PickleError(f"a key is set in {kind_of(target)}")
        return target


def keys(items: list[Value]) -> list[Value]:
    """These values as keys of a dict or members of a set; what is not hashed here is wrapped."""
    types = set(map(type, items))
    if types == _STR:
        return items
    # Python hashes an int to its remainder by 2^61-1: few of 64 bits are equal, larger ones are
    # made to be by the thousand. Tuples of ints, too.
    if types <= _HASHABLE and int not in types:
        return items
    return [item if _hashable(item) else Key(item) for item in items]


def _hashable(item: Value) -> bool:
    return type(item) in _HASHABLE and (type(item) is not int or -(2**63) <= item < 2**63)


def opened(value: Value) -> Value:
    """An `EnumValue` as the object it may be: members of enums are not changed afterwards."""
    if type(value) is EnumValue:
        return ObjectValue("reduce", value.cls, (value.value,), None)
    return value


def kind_of(value: Value) -> str:
    """`"a tuple"`, for error messages."""
    return f"a {type(value).__name__}"
