"""The state of the pickle machine: its bytes, stack, marks and memo. Torch-free."""

from __future__ import annotations

from aoserial.errors import PickleError
from aoserial.storage.pickle.builder import Builder
from aoserial.storage.pickle.limits import Limits, spent
from aoserial.storage.pickle.values import Value

# Zero bytes after the pickle, more than any fixed operand has. Zero is no opcode, so a stream that
# runs off its end meets one, and no operand needs a check of its own, unless it can be wrong.
PADDING = 16


class TruncatedError(PickleError):
    """The bytes end before the pickle does."""


class Machine:
    """What the opcodes work on.

    Attributes:
        data: the pickle, with `PADDING` after its `size` bytes.
        builder: says what stands for what the pickle would import, call or set.
        stack: the values since the last mark.
        below: the stacks under the marks, outermost first: so no opcode can reach across a mark.
        memo: values by index, as long as indexes come in order, as picklers give them.
        scattered: the others, from the first on that does not: a large index costs nothing.
        made: how much was made, in objects of some 110 bytes, the size of a small list.
    """

    __slots__ = (
        "below",
        "builder",
        "data",
        "limits",
        "made",
        "max_made",
        "max_memo",
        "memo",
        "names",
        "scattered",
        "size",
        "stack",
    )

    def __init__(self, data: bytes, builder: Builder, limits: Limits) -> None:
        limits.check("pickle_bytes", len(data))
        self.data = data + bytes(PADDING)
        self.size = len(data)
        self.builder = builder
        self.limits = limits
        self.max_made, self.max_memo = limits.for_pickle(len(data))
        self.stack: list[Value] = []
        self.below: list[list[Value]] = []
        self.memo: list[Value] = []
        self.scattered: dict[int, Value] = {}
        self.names: dict[tuple[str, str], Value] = {}
        self.made = 0

    def check_budgets(self) -> None:
        """Raises `LimitError` when one is spent. Called every few thousand opcodes."""
        self.limits.check("marks", len(self.below))
        self.limits.check("stack", len(self.stack) + sum(map(len, self.below)))
        remembered = len(self.memo) + len(self.scattered)
        if remembered > self.max_memo:
            raise spent("memo", self.max_memo, remembered)
        self.count(0)

    def count(self, made: int) -> None:
        """Counts so many objects more, and looks at that budget at once: a call can make many."""
        self.made += made
        if self.made > self.max_made:
            raise spent("objects", self.max_made, self.made)

    def make(self, value: Value) -> None:
        """Puts a new object on the stack."""
        self.made += 1
        self.stack.append(value)

    def pop_mark(self) -> list[Value]:
        """What lies above the last mark, which goes, too."""
        above = self.stack
        self.stack = self.below.pop()
        return above

    def remember(self, index: int) -> None:
        """Puts the value on top of the stack in the memo."""
        memo = self.memo
        if index == len(memo) and not self.scattered:
            memo.append(self.stack[-1])
        elif index < len(memo):
            memo[index] = self.stack[-1]
        else:
            self.scattered[index] = self.stack[-1]

    def recall(self, index: int, end: int) -> None:
        """Puts an entry of the memo on the stack, for an opcode whose operand has that end."""
        if index < len(self.memo):
            self.stack.append(self.memo[index])
        elif index in self.scattered:
            self.stack.append(self.scattered[index])
        else:
            self.check_whole(end)
            raise PickleError(f"there is no memo entry {index}")

    def replace(self, old: Value, new: Value) -> None:
        """Puts `new` in the place of the value on top of the stack, and of its memo entry.

        A pickler remembers an object before it says what is in it, so the entry is among the last.
        """
        self.stack[-1] = new
        memo = self.memo
        for index in range(len(memo) - 1, max(-1, len(memo) - 1 - _RECENT), -1):
            if memo[index] is old:
                memo[index] = new
                return

    def name(self, module: str, name: str, at: int) -> Value:
        """What stands for a name; the same name is one value."""
        value = self.names.get((module, name))
        if value is None:
            self.builder.at = at
            value = self.builder.name(module, name)
            self.names[module, name] = value
            self.made += 3  # two texts, a name, and the entry for it
        return value

    def line(self, at: int) -> tuple[bytes, int]:
        """The bytes from `at` to the end of the line, and where the next one begins."""
        end = self.data.find(b"\n", at, self.size)
        if end < 0:
            raise TruncatedError("its bytes end in the middle of a line")
        self.limits.check("text_bytes", end - at)
        return self.data[at:end], end + 1

    def sized(self, at: int, width: int) -> tuple[bytes, int]:
        """The bytes after a length of `width` bytes, and where they end."""
        start = at + width
        end = start + int.from_bytes(self.data[at:start], "little")
        if end > self.size:
            left = max(0, self.size - start)
            raise TruncatedError(f"an operand of {end - start} bytes does not fit: {left} are left")
        return self.data[start:end], end

    def check_whole(self, end: int) -> None:
        """Raises `TruncatedError` unless an operand with that end lies in the bytes."""
        if end > self.size:
            raise TruncatedError("its bytes end in the middle of an operand")

    def whereabouts(self) -> str | None:
        """The keys under which the value being made will lie, dotted: for error messages.

        While a pickler writes a value, its key is the last thing below it on the stack; or the last
        but one, when the last is the container that the marked values will go into.
        """
        steps = []
        for stack in (*self.below, self.stack):
            key = next((value for value in stack[:-3:-1] if type(value) is str), None)
            if key is not None:
                steps.append(key[:200])
        return ".".join(steps[:32]) or None


# How far back in the memo an object is looked for that turned out to be something else. The state
# of a NumPy array or dtype, which comes between, makes five entries.
_RECENT = 64
