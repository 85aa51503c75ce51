"""The state of what writes a pickle: opcodes so far, what waits, what was remembered. Torch-free.

No recursion: what is still to be written waits on a stack of its own, so values may lie as deep
inside each other as they like. What is mutable is remembered before that which is in it, so cycles
close; what has to be made of its parts is remembered after them, and when a cycle has made it
meanwhile, the parts are dropped again, as Python's pickler does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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

# Writes one value of the type it is for
Handler: TypeAlias = Callable[["Emitter", Any], None]


class Code(bytes):
    """Opcodes that wait for what is to be written before them. They remember nothing."""

    __slots__ = ()


class Late:
    """Opcodes that are made when their turn comes: they remember something, or recall it."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[Emitter], bytes]) -> None:
        self.make = make


class Made:
    """Waits for the parts of a value; see `Emitter.make`."""

    __slots__ = ("code", "fill", "undo", "value")

    def __init__(self, value: Value, code: bytes, undo: bytes, fill: Handler | None) -> None:
        self.value = value
        self.code = code
        self.undo = undo
        self.fill = fill


class Emitter:
    """Writes a tree of values as opcodes.

    Attributes:
        code: the opcodes, in pieces.
        todo: values and opcodes still to be written, the next one last.
        records: the storages so far, by identity.
        classes: of storages by identity, where they are known from an earlier run.
        value: the one that is being written.
    """

    def __init__(self, handlers: Mapping[type, Handler], classes: Mapping[int, str]) -> None:
        """
        Args:
            handlers: by the exact type of a value; that for `Part` serves all other parts.
            classes: see above.
        """
        self.code: list[bytes] = [op.HEADER]
        self.todo: list[Value] = []
        self.records: dict[int, Record] = {}
        self.classes = classes
        self.value: Value = None
        self._handlers: dict[type, Handler] = {
            Code: Emitter._write,
            Late: Emitter._late,
            Made: Emitter._made,
            **handlers,
        }
        self._remembered = 0
        self._memo: dict[int, bytes] = {}
        self._texts: dict[str, bytes] = {}
        self._constants: dict[object, bytes] = {}
        self._tuples: dict[tuple[int, ...], bytes] = {}
        self._begun: dict[int, int] = {}

    def run(self, root: Value) -> None:
        """Writes the value and all that is in it."""
        todo, handlers = self.todo, self._handlers
        todo.append(root)
        while todo:
            value = self.value = todo.pop()
            handler = handlers.get(type(value))
            if handler is None:
                handler = self._other(value)
            handler(self, value)
        self.code.append(op.STOP)

    def _other(self, value: Value) -> Handler:
        if isinstance(value, Part):
            return self._handlers[Part]
        raise UnsupportedTensorError(
            f"a {type(value).__module__}.{type(value).__qualname__} cannot be saved here: it is "
            "none of the values that stand for what a pickle holds"
        )

    # -- what waits -------------------------------------------------------------------------------

    def then(self, *items: Value) -> None:
        """Puts these before all else that waits."""
        self.todo.extend(reversed(items))

    def append(self, items: Sequence[Value]) -> None:
        """What waits next is these, to be appended to what is on the stack then."""
        for start in reversed(range(0, len(items), _BATCH)):
            self.todo.append(Code(op.APPENDS))
            self.todo.extend(items[start : start + _BATCH][::-1])
            self.todo.append(Code(op.MARK))

    def set(self, pairs: Sequence[tuple[Value, Value]]) -> None:
        """What waits next is these, to be set on what is on the stack then."""
        for start in reversed(range(0, len(pairs), _BATCH)):
            self.todo.append(Code(op.SETITEMS))
            for pair in pairs[start : start + _BATCH][::-1]:
                self.todo.extend(pair[::-1])
            self.todo.append(Code(op.MARK))

    def make(
        self,
        value: Value,
        parts: Iterable[Value],
        code: bytes,
        *,
        undo: bytes,
        fill: Handler | None = None,
    ) -> None:
        """What waits next is these, of which `code` then makes the value.

        Args:
            value: remembered once it is made.
            parts: in order.
            code: takes what lies on the stack, and leaves the value.
            undo: takes it as well, and leaves nothing: a cycle has made the value meanwhile.
            fill: writes what is put into the value once it is made.
        """
        begun = self._begun.get(id(value), 0) + 1
        if begun > _MOST_INSIDE_ITSELF:
            raise UnsupportedTensorError("this is part of itself, and so can never be made")
        self._begun[id(value)] = begun
        self.todo.append(Made(value, code, undo, fill))
        self.todo.extend(reversed(tuple(parts)))

    def _write(self, code: Code) -> None:
        self.code.append(code)

    def _late(self, late: Late) -> None:
        self.code.append(late.make(self))

    def _made(self, made: Made) -> None:
        value = made.value
        self._begun[id(value)] -= 1
        if id(value) in self._memo:
            self.code.append(made.undo)
            self.recall(value)
        else:
            self.code.append(made.code + self.remember(value))
            if made.fill is not None:
                made.fill(self, value)

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
