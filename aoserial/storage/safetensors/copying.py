"""Which bytes of a new file lie in another one as they are. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from aoserial.storage.part import Part, ViewPart
from aoserial.storage.safetensors.reader import FilePart
from aoserial.storage.source import Source


class Span(NamedTuple):
    """Bytes to be copied, from `start` of a source to `offset` of the new file."""

    source: Source
    start: int
    nbytes: int
    offset: int


def stored_in(part: Part) -> FilePart | None:
    """The part of a file that has the same bytes; None for one that has to be made."""
    stored = part.base if isinstance(part, ViewPart) else part
    return stored if isinstance(stored, FilePart) else None


def spans(
    parts: Mapping[str, Part], offsets: Mapping[str, int], names: Collection[str]
) -> list[Span]:
    """The bytes of these parts, in the order of the files they lie in; neighbours are one span.

    Args:
        parts: of the new file.
        offsets: of each in the new file.
        names: of those that lie in a file.
    """
    found = []
    for name in names:
        stored = stored_in(parts[name])
        if stored is not None and stored.nbytes:
            found.append(Span(stored.source, stored.offset, stored.nbytes, offsets[name]))
    files = {id(span.source): number for number, span in enumerate(reversed(found))}
    found.sort(key=lambda span: (files[id(span.source)], span.start))
    joined: list[Span] = []
    for span in found:
        last = joined[-1] if joined else None
        if last is not None and _follows(last, span):
            joined[-1] = last._replace(nbytes=last.nbytes + span.nbytes)
        else:
            joined.append(span)
    return joined


def in_reading_order(parts: Mapping[str, Part], names: Collection[str], large: int) -> list[str]:
    """The names, of the parts of `large` bytes or more those in files first and as they lie there.

    The others stay in the order of the new file: they are written many at a time.
    """

    def place(name: str) -> tuple[bool, str, int]:
        stored = stored_in(parts[name])
        if stored is None or stored.nbytes < large:
            return True, "", 0
        return False, stored.source.path, stored.offset

    return sorted(names, key=place)


def _follows(last: Span, span: Span) -> bool:
    return (
        span.source is last.source
        and span.start == last.start + last.nbytes
        and span.offset == last.offset + last.nbytes
    )
