"""Walks the text of a safetensors header, item by item. Torch-free.

What comes out is checked for grammar and names; what the numbers mean is `header`'s business.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TypeAlias

from aoserial.errors import HeaderError, TensorNameError
from aoserial.storage.safetensors.explain import explain
from aoserial.storage.safetensors.grammar import (
    COMMON_ENTRY,
    METADATA,
    NAMED,
    PAIR,
    SPACED_ENTRIES,
    WHITESPACE,
    Limits,
    check_name,
    has_control,
    quoted,
    unescape,
)

# (name, text of the kind, begin, end, where the item starts); see COMMON_ENTRY
Item: TypeAlias = tuple[str, bytes, bytes, bytes, int]

_WHITESPACE = re.compile(WHITESPACE)
_EMPTY = re.compile(rb"\{" + WHITESPACE + rb"\}")


class Scan:
    """One pass over a header's text.

    Attributes:
        metadata: the map of `__metadata__`, once the pass has come to it; None if there is none.
    """

    def __init__(self, raw: bytes, limits: Limits) -> None:
        self.metadata: dict[str, str] | None = None
        self._raw = raw
        self._limits = limits

    def tensors(self) -> Iterator[Item]:
        """The tensors as they come. Raises `HeaderError` at the first thing that is not right.

        A kind from a common entry is known to lie between the right words, and no more.
        """
        raw = self._raw
        if not raw.startswith(b"{"):
            raise HeaderError(f"the header must start with '{{' but starts with {raw[:1]!r}")
        spelling = COMMON_ENTRY
        position = 0  # at the brace or the comma before the next item
        if empty := _EMPTY.match(raw):
            position = empty.end() - 1
        while True:
            start = position
            match = spelling.match(raw, position)
            if match is None:
                start = position = skip_whitespace(raw, position)
                if raw[position : position + 1] == b"}":
                    break
                match = _match_any(raw, position)
                if match is None:
                    position = self._read_metadata(position)
                    continue
                spelling = match.re  # files are spelled alike throughout
            position = match.end()
            if spelling is COMMON_ENTRY:
                name, kind, begin, end = match.groups()
                yield name.decode(), kind, begin, end, start
            else:
                yield (*_read_spaced(match), start)
        end = skip_whitespace(raw, position + 1)
        if end != len(raw):
            raise HeaderError(
                f"after the header's closing brace only whitespace may follow, not "
                f"{raw[end : end + 1]!r} at byte {8 + end} of the file"
            )

    def _read_metadata(self, position: int) -> int:
        """Reads the map whose item starts at `position`; returns where the next item does."""
        if self.metadata is not None:
            raise HeaderError(f"{METADATA!r} is given twice")
        raw, limits = self._raw, self._limits
        named = NAMED.match(raw, position)
        if named is None or raw[named.end() : named.end() + 1] != b"{":
            raise HeaderError(f"{METADATA!r} must be a map of strings to strings")
        metadata: dict[str, str] = {}
        self.metadata = metadata
        before, spent = b"{", 0
        position = named.end()
        # each round begins at the brace or comma before a pair
        while raw[position : position + 1] == before:
            position = skip_whitespace(raw, position + 1)
            if not metadata and raw[position : position + 1] == b"}":
                break
            pair = PAIR.match(raw, position)
            if pair is None:
                raise explain(raw, position, metadata=True)
            spent += pair.end() - position
            limits.check("metadata_bytes", spent)
            key = unescape(pair[1])
            if key in metadata:
                raise HeaderError(f"the metadata key {quoted(key)} occurs twice")
            if has_control(key):
                raise HeaderError(f"the metadata key {quoted(key)} contains a control character")
            metadata[key] = unescape(pair[2])
            limits.check("metadata_keys", len(metadata))
            before, start, position = b",", position, pair.end()
        if raw[position : position + 1] != b"}":
            raise explain(raw, start if metadata else position, metadata=True)
        return skip_whitespace(raw, position + 1)


def skip_whitespace(raw: bytes, position: int) -> int:
    """The first position from `position` on that is no whitespace."""
    match = _WHITESPACE.match(raw, position)
    assert match is not None  # it matches the empty text, too
    return match.end()


def _match_any(raw: bytes, position: int) -> re.Match[bytes] | None:
    """The tensor at `position` in whatever spelling it has. None: it is the metadata."""
    for pattern in (COMMON_ENTRY, *SPACED_ENTRIES):
        match = pattern.match(raw, position)
        if match is not None:
            return match
    named = NAMED.match(raw, position)
    if named is not None and unescape(named[1]) == METADATA:
        return None
    raise explain(raw, position)


def _read_spaced(match: re.Match[bytes]) -> tuple[str, bytes, bytes, bytes]:
    """Name, kind, begin and end of one of `SPACED_ENTRIES`, the kind as `COMMON_ENTRY` has it."""
    literal, dtype, shape, begin, end = match.group("name", "dtype", "shape", "begin", "end")
    name = unescape(literal)
    if not (name.isascii() and name.isprintable() and 0 < len(name) <= 64):
        try:
            check_name(name)
        except TensorNameError as error:
            raise HeaderError(error.message) from None
    return name, b'%b,"shape":%b' % (dtype, shape), begin, end
