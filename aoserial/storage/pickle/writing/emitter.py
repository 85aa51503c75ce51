"""The state of what writes a pickle: opcodes so far, and what was remembered. Torch-free.

No recursion: a handler that meets a value inside of its own gives it away and is resumed when it is
written, so values may lie as deep inside each other as they like. What is mutable is remembered
before that which is in it, so cycles close; what has to be made of its parts is remembered after
them, and when a cycle has made it meanwhile, the parts are dropped again, as Python's pickler does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import NoneType
from typing import Any, TypeAlias

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.part import Part
from aoserial.storage.pickle.values import Value
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.records import Record

# Items to one APPENDS or SETITEMS: readers have room for so many on their stacks
_BATCH = 1000

# How often something may be begun inside itself: once for each cycle that it is part of. Python's
# pickler gives up at about that depth, too.
_MOST_INSIDE_ITSELF = 1000

# Values inside of one, each given when its turn comes, and written before the next is asked for
Inside: TypeAlias = Iterator[Value]

# Writes one value of the type it is for, or begins to
Handler: TypeAlias = Callable[["Emitter", Any], Inside | None]


class Emitter:
    """Writes a tree of values as opcodes.

    Attributes:
        code: the opcodes, in pieces.
        records: the storages so far, by identity.
        classes: of storages by identity, where they are known from an earlier run.
        value: the one that was begun last.
    """

    def __init__(self, handlers: Mapping[type, Handler], classes: Mapping[int, str]) -> None:
        """
        Args:
            handlers: by the exact type of a value; that for `Part` serves all other parts.
            classes: see above.
        """
        self.code: list[bytes] = [op.HEADER]
        self.records: dict[int, Record] = {}
        self.classes = classes
        self.value: Value = None
        self._handlers = handlers
        self._scalars: dict[type, Callable[[Any], bytes]] = {
            str: self.text,
            int: op.integer,
            bool: op.flag,
            float: op.number,
            NoneType: op.none,
        }
        self._remembered = 0
        self._memo: dict[int, bytes] = {}
        self._texts: dict[str, bytes] = {}
        self._constants: dict[object, bytes] = {}
        self._tuples: dict[tuple[int, ...], bytes] = {}
        self._begun: dict[int, int] = {}

    def run(self, root: Value) -> None:
        """Writes the value and all that is in it."""
        handlers, scalars, append = self._handlers, self._scalars, self.code.append
        outer: list[Inside] = []
        inside: Inside = iter((root,))
        while True:
            for value in inside:
                scalar = scalars.get(type(value))
                if scalar is not None:
                    append(scalar(value))
                    continue
                self.value = value
                handler = handlers.get(type(value)) or self._other(value)
                more = handler(self, value)
                if more is not None:
                    outer.append(inside)
                    inside = more
                    break
            else:
                if not outer:
                    append(op.STOP)
                    return
                inside = outer.pop()

    def _other(self, value: Value) -> Handler:
        if isinstance(value, Part):
            return self._handlers[Part]
        raise UnsupportedTensorError(
            f"a {type(value).__module__}.{type(value).__qualname__} cannot be saved here: it is "
            "none of the values that stand for what a pickle holds"
        )

    # -- what is put into others, and what is made of them ----------------------------------------

    def append(self, items: Sequence[Value]) -> Inside:
        """Appends these to what is on the stack."""
        scalars, append = self._scalars, self.code.append
        for start in range(0, len(items), _BATCH):
            append(op.MARK)
            for item in items[start : start + _BATCH]:
                scalar = scalars.get(type(item))
                if scalar is None:
                    yield item
                else:
                    append(scalar(item))
            append(op.APPENDS)

    def set(self, pairs: Sequence[tuple[Value, Value]]) -> Inside:
        """Sets these on what is on the stack."""
        scalars, append = self._scalars, self.code.append
        for start in range(0, len(pairs), _BATCH):
            append(op.MARK)
            for pair in pairs[start : start + _BATCH]:
                for item in pair:
                    scalar = scalars.get(type(item))
                    if scalar is None:
                        yield item
                    else:
                        append(scalar(item))
            append(op.SETITEMS)

    def begin(self, value: Value) -> None:
        """To be called before the parts of a value are written."""
        begun = self._begun.get(id(value), 0) + 1
        if begun > _MOST_INSIDE_ITSELF:
            raise UnsupportedTensorError("this is part of itself, and so can never be made")
        self._begun[id(value)] = begun

    def made(self, value: Value, code: bytes, *, undo: bytes) -> bool:
        """Makes a value of its parts on the stack by `code`, unless a cycle has made it meanwhile.

        Args:
            value: remembered from now on.
            code: takes the parts, and leaves the value.
            undo: takes them as well, and leaves nothing.

        Returns:
            Whether it was made just now.
        """
        self._begun[id(value)] -= 1
        known = self._memo.get(id(value))
        self.code.append(code + self.remember(value) if known is None else undo + known)
        return known is None

    # -- what is there more than once -------------------------------------------------------------

    def recall(self, value: Value) -> bool:
        """Writes a value that was written before; returns whether it was."""
        known = self._memo.get(id(value))
        if known is None:
            return False
        self.code.append(known)
        return True

    def remember(self, value: Value) -> bytes:
        """What remembers the value on top of the stack. It must outlive this emitter."""
        put, self._memo[id(value)] = op.memo(self._remembered)
        self._remembered += 1
        return put

    def text(self, value: str) -> bytes:
        """A text; the same text is written once."""
        known = self._texts.get(value)
        if known is not None:
            return known
        code = op.text(value)
        put, self._texts[value] = op.memo(self._remembered)
        self._remembered += 1
        return code + put

    def constant(self, key: object, make: Callable[[], bytes]) -> bytes:
        """What is never changed, and so written once for all that have the same key."""
        known = self._constants.get(key)
        if known is not None:
            return known
        code = make()
        put, self._constants[key] = op.memo(self._remembered)
        self._remembered += 1
        return code + put

    def name(self, module: str, name: str) -> bytes:
        """A function or class, by the name under which it would be imported."""
        known = self._constants.get((module, name))
        return known or self.constant((module, name), lambda: self._name(module, name))

    def _name(self, module: str, name: str) -> bytes:
        outer, *inner = name.split(".")
        if not inner or not all(part.isidentifier() for part in (outer, *inner)):
            return op.name(module, name)
        # before protocol 4, a name inside a class is had by calls of getattr
        code = b"".join(self.name("builtins", "getattr") for _ in inner)
        code += self.name(module, outer)
        for part in inner:
            code += self.text(part) + op.TUPLES[2] + op.REDUCE
        return code

    def integers(self, values: tuple[int, ...]) -> bytes:
        """A tuple of ints, which is not remembered."""
        known = self._tuples.get(values)
        if known is None:
            known = self._tuples[values] = op.integers(values)
        return known
