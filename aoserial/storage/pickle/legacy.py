"""torch.save before 1.6: five pickles in a row, then the bytes of the storages. Torch-free.

The pickles are a magic number, the protocol, facts on the machine, the object, and the keys of the
storages. For each key follow an int64 count of elements and the elements.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from aoserial.errors import BoundsError, ContainerError, PickleError, escape
from aoserial.storage.pickle.dtypes import ITEMSIZES
from aoserial.storage.pickle.interpreter import Program, interpret
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.machine import TruncatedError
from aoserial.storage.pickle.recognise import Builders, Recogniser
from aoserial.storage.pickle.references import Storages
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.values import Value
from aoserial.storage.source import Source

MAGIC = 0x1950A86A20F9469CFC6C  # torch.serialization.MAGIC_NUMBER
PROTOCOL = 1001

_KEY = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)

# Where a pickle ends is known only when it was run. So much of the file is read at first, four
# times as much whenever that was not enough.
_FIRST_BYTES = 64 * 2**10


class Legacy:
    """A legacy stream, read to its end.

    Attributes:
        root: the object.
        storages: by key.
        notes: what was left out.
    """

    def __init__(self, source: Source, limits: Limits, builder: Builders = Recogniser) -> None:
        """Reads it all but the bytes of tensors, and runs the pickles with such builders.

        Raises:
            ContainerError: it is not laid out as torch lays it out.
            PickleError, BoundsError, LimitError: as for any pickle.
        """
        self._source = source
        self._limits = limits
        self._builder = builder
        self._counts: dict[str, tuple[str, int]] = {}
        self.storages: dict[str, StorageRef] = {}
        at = self._read_preamble()
        self.root, at, self.notes = self._read_object(at)
        keys, at = self._run(at)
        at = self._read_storages(keys, at)
        if at != source.size:
            raise ContainerError(f"{source.size - at} bytes follow its last storage at byte {at}")

    def _read_preamble(self) -> int:
        magic, at = self._run(0)
        if type(magic) is not int or magic != MAGIC:
            raise ContainerError("its first pickle is not torch's magic number")
        protocol, at = self._run(at)
        if type(protocol) is not int or protocol != PROTOCOL:
            raise ContainerError(f"its protocol is {protocol!r:.40}, not {PROTOCOL}")
        facts, at = self._run(at)
        # torch came to write little-endian everywhere; before, it wrote what the machine had
        if type(facts) is not dict or facts.get("little_endian", True) is not True:
            raise ContainerError("its third pickle does not say that it is little-endian")
        return at

    def _read_object(self, at: int) -> tuple[Value, int, list[str]]:
        """The object; what its storages are is learnt from it, where they are only later."""
        start = at

        def begin() -> Recogniser:
            self._counts.clear()
            self.storages.clear()
            return self._builder(Storages(self._find), self._limits)

        recogniser, program = _run_at(self._source, start, self._source.size, begin, self._limits)
        return program.root, start + program.end, recogniser.notes()

    def _find(self, key: str, dtype: str, count: int) -> StorageRef:
        """A storage that the object refers to; all references to one must agree."""
        if not _KEY.fullmatch(key):
            raise PickleError(f"a storage has the key '{escape(key[:40])}', which is no number")
        first = self._counts.setdefault(key, (dtype, count))
        if first != (dtype, count):
            raise BoundsError(
                f"storage {key} is {first[1]} elements of {first[0]} in one place, "
                f"{count} of {dtype} in another"
            )
        nbytes = count * ITEMSIZES[dtype]
        storage = StorageRef(self._source, key, 0, nbytes, limits=self._limits)
        return self.storages.setdefault(key, storage)

    def _read_storages(self, keys: Value, at: int) -> int:
        if type(keys) is not list or not all(type(key) is str for key in keys):
            raise ContainerError("its fifth pickle is not a list of the keys of storages")
        if len(set(keys)) != len(keys) or set(keys) != self.storages.keys():
            raise ContainerError(
                f"its object refers to {len(self.storages)} storages, but its list of {len(keys)} "
                "names others"
            )
        for key in keys:
            at = self._place(self.storages[key], self._counts[key][1], at)
        return at

    def _place(self, storage: StorageRef, expected: int, at: int) -> int:
        """Says where a storage is; its count lies at `at`. Returns where it ends."""
        storage.start = at + 8
        if storage.start > self._source.size:
            raise ContainerError(f"it is cut off before storage {storage.key}")
        count = int.from_bytes(self._source.pread(at, 8), "little", signed=True)
        if count != expected:
            raise BoundsError(
                f"storage {storage.key} has {count} elements at byte {at}, but the pickle says "
                f"{expected}"
            )
        end = storage.start + storage.nbytes
        if end > self._source.size:
            raise ContainerError(f"it is cut off in storage {storage.key}, which ends at {end}")
        return end

    def _run(self, at: int) -> tuple[Value, int]:
        return run_plain(self._source, at, self._source.size, self._builder, self._limits)


def no_reference(_: Value) -> None:
    """Resolves the persistent ids of a pickle that has none."""


def run_plain(
    source: Source, at: int, end: int, builder: Builders, limits: Limits
) -> tuple[Value, int]:
    """Runs a pickle without persistent ids that begins at byte `at`, and ends before `end`.

    Returns:
        Its object, and where it ends.
    """
    _, program = _run_at(source, at, end, lambda: builder(no_reference, limits), limits)
    return program.root, at + program.end


def _run_at(
    source: Source, at: int, end: int, begin: Callable[[], Recogniser], limits: Limits
) -> tuple[Recogniser, Program]:
    """Runs the pickle that begins at byte `at`; its `end` counts from there.

    Args:
        end: where it must have ended.
        begin: gives a new builder: what was read may have been too little, and all is run again.
    """
    rest = end - at
    size = _FIRST_BYTES
    while True:
        data = source.pread(at, min(size, rest))
        builder = begin()
        try:
            return builder, interpret(data, builder, limits)
        except TruncatedError:
            if len(data) == rest:
                raise
            builder.forget()
        if size >= limits.pickle_bytes:
            limits.check("pickle_bytes", rest)
        size = min(4 * size, limits.pickle_bytes)
