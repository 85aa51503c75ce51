"""Budgets that bound what a hostile pickle or archive can cost. Torch-free."""

from __future__ import annotations

from dataclasses import dataclass

from aoserial.errors import LimitError

# Below this many, memo entries and objects are not counted against the size of the pickle: 50 MB.
_FREE = 500_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """How much of everything a file may have.

    Memo entries and objects are bounded by the size of the pickle, too (`for_pickle`). Each takes
    about 110 bytes here, while one opcode of a byte or two can ask for it; what picklers write has
    ten bytes and more for each. So memory stays below 64 MiB + 20 × the pickle.
    """

    pickle_bytes: int = 256 * 2**20
    ops: int = 20_000_000  # some eight seconds; 660,000 plain tensors
    stack: int = 1_000_000
    marks: int = 10_000
    memo: int = 5_000_000
    objects: int = 20_000_000
    bytes_per_object: int = 6
    text_bytes: int = 64 * 2**20  # UTF-8 may take four times as much as a str
    integer_bits: int = 1024
    depth: int = 1000  # containers inside containers; picklers give up at about that, too
    rank: int = 64
    entries: int = 1_000_000
    directory_bytes: int = 256 * 2**20
    # What a view that repeats elements (an expanded tensor) may grow to when it is read
    expanded_bytes: int = 256 * 2**20
    # Names of tensors when the tree is written out: a few nested lists can hold the same billions
    tensors: int = 1_000_000

    def check(self, limit: str, found: int) -> None:
        """Raises `LimitError` when more than the budget of that name was found."""
        allowed: int = getattr(self, limit)
        if found > allowed:
            raise spent(limit, allowed, found)

    def for_pickle(self, size: int) -> tuple[int, int]:
        """How many nodes and how many memo entries a pickle of `size` bytes may have."""
        share = _FREE + size // self.bytes_per_object
        return min(self.objects, share), min(self.memo, share)


def spent(limit: str, allowed: int, found: int) -> LimitError:
    """The error for a budget that is spent."""
    return LimitError(
        f"the file has {found} {_LIMITS[limit]}, {allowed} are allowed",
        limit=limit,
        allowed=allowed,
        found=found,
    )


_LIMITS = {
    "pickle_bytes": "bytes of pickle",
    "ops": "or more opcodes in its pickle",
    "stack": "or more values on the stack of its pickle",
    "marks": "or more marks on the stack of its pickle",
    "memo": "or more entries in the memo of its pickle",
    "objects": "or more objects in its pickle, or in the tree of them",
    "text_bytes": "bytes in one text of its pickle",
    "integer_bits": "bits in an integer of its pickle",
    "depth": "or more objects inside each other",
    "rank": "dimensions in one tensor",
    "entries": "archive entries",
    "directory_bytes": "bytes of archive directory",
    "tensors": "or more tensors, counting each as often as it is there",
    "expanded_bytes": "bytes in a view that repeats its elements",
}
