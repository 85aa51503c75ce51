"""Reads and checks a safetensors header. Torch-free.

The format: eight bytes of header length N, little-endian; N bytes of JSON; the data, which the
tensors tile without hole or overlap. Whatever is accepted here, the reference reader
(safetensors 0.8.0) accepts with equal tensors; the reverse does not hold. Time and memory are
linear in the header's length, and limits are checked before anything is allocated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias

from aoserial.errors import FormatError, HeaderError, locating
from aoserial.storage.safetensors.explain import explain
from aoserial.storage.safetensors.grammar import (
    KIND,
    METADATA,
    Kind,
    Limits,
    quoted,
    read_kind,
)
from aoserial.storage.safetensors.journal import settled_header
from aoserial.storage.safetensors.scan import Scan
from aoserial.storage.sniff import SNIFF_BYTES, container
from aoserial.storage.source import Source

# (dtype, shape, begin, end): torch's name of the dtype; the tensor's shape, not the file's (they
# differ for F4); bytes counted from the start of the data. A plain tuple: 80,000 of a named kind
# take three times as long to make, and the collector would go on visiting them for ever.
Entry: TypeAlias = tuple[str, tuple[int, ...], int, int]

# Files have few distinct dtypes and shapes. One made to have a million must not fill the memory.
_MAX_KINDS = 4096


@dataclass(frozen=True, slots=True)
class Header:
    """A checked header.

    Attributes:
        raw: its text, without the eight bytes of length, with the padding.
        entries: tensors by name, in data order: by begin, end, name.
        metadata: the format's free text map; empty when there is none.
        doubt: to be added to what is said when it should turn out not to be whole; usually empty.
    """

    raw: bytes
    entries: dict[str, Entry]
    metadata: dict[str, str]
    doubt: str = ""

    @property
    def data_start(self) -> int:
        """Where in the file the data begins; entries count from here."""
        return 8 + len(self.raw)


def read_header(source: Source, limits: Limits = Limits()) -> Header:  # noqa: B008 - frozen
    """Reads and checks the header of an opened file.

    Raises:
        HeaderError: it is not a safetensors file, or breaks the format's rules.
        FormatError: a dtype this version does not know.
        LimitError: a budget is spent.
    """
    with locating(file=source.path):
        head = source.pread(0, min(SNIFF_BYTES, source.size))
        container(head)
        length = int.from_bytes(head[:8], "little")
        limits.check("header_bytes", length)
        rest = source.size - 8
        if not 2 <= length <= rest:
            raise HeaderError(
                f"the header's length is given as {length} bytes, but it must have at least 2 "
                f"and the file has {rest} after the length"
            )
        raw, doubt = settled_header(source, length)
        try:
            header = parse_header(raw, data_bytes=rest - length, limits=limits)
        except FormatError as error:
            error.add(doubt)
            raise
        return replace(header, doubt=doubt)


def parse_header(
    raw: bytes,
    *,
    data_bytes: int,
    limits: Limits = Limits(),  # noqa: B008 - frozen
) -> Header:
    """Checks a header's text against the format's rules and the size of the data.

    Args:
        raw: the N bytes after the length.
        data_bytes: how many bytes the file has after them; the tensors must tile them exactly.
        limits: budgets.

    Raises:
        HeaderError, FormatError, LimitError: as `read_header`.
    """
    limits.check("header_bytes", len(raw))
    max_tensors = limits.tensors
    scan = Scan(raw, limits)
    kinds = _Kinds(limits)
    entries: dict[str, Entry] = {}
    empty: dict[Entry, Entry] = {}
    end, end_text, last_name = 0, b"0", ""
    in_order = True

    for name, kind_text, begin_text, next_end_text, start in scan.tensors():
        kind = kinds.get(kind_text)
        if kind is None:
            with locating(name=name):
                kind = kinds.learn(kind_text)
            if kind is None:
                raise explain(raw, start)
        dtype, shape, nbytes = kind

        # One that begins where the last ended shares its int: this halves the memory of offsets.
        if begin_text == end_text:
            begin = end
        else:
            begin = int(begin_text)
            in_order = False
        end, end_text = int(next_end_text), next_end_text
        if end - begin != nbytes:
            raise HeaderError(
                f"is {dtype}{list(shape)}, which takes {nbytes} bytes, but its data_offsets are "
                f"[{begin}, {end}]"
            ).locate(name=name)

        if name in entries:
            raise HeaderError(f"the tensor name {quoted(name)} occurs twice")
        entry = (dtype, shape, begin, end)
        if not nbytes:  # several can be in one place: then names decide, and one entry serves all
            in_order = in_order and name > last_name
            entry = empty.setdefault(entry, entry)
        entries[name] = entry
        last_name = name
        if len(entries) > max_tensors:
            limits.check("tensors", len(entries))

    if METADATA in entries:
        raise HeaderError(f"{METADATA!r} describes a tensor; it must map strings to strings")
    if not in_order or end != data_bytes:
        entries = _tiled(entries, data_bytes)
    return Header(raw, entries, scan.metadata or {})


class _Kinds(dict[bytes, Kind]):
    """The kinds met so far, by their text."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._dimensions = 0

    def learn(self, text: bytes) -> Kind | None:
        """Parses and keeps a new one; None when the text breaks the grammar."""
        match = KIND.fullmatch(text)
        if match is None:
            return None
        kind = read_kind(match[1].decode(), match[2], self._limits)
        self._dimensions += len(kind.shape)
        self._limits.check("dimensions", self._dimensions)
        if len(self) >= _MAX_KINDS:
            self.clear()
        self[text] = kind
        return kind


def _tiled(entries: dict[str, Entry], data_bytes: int) -> dict[str, Entry]:
    """The entries in data order; raises unless they tile the data exactly."""
    # Stable sorts from the least key to the first: the keys are ints that exist already, where a
    # tuple for each entry would double the memory.
    names = sorted(entries)
    names.sort(key=lambda name: entries[name][3])
    names.sort(key=lambda name: entries[name][2])
    expected, before = 0, ""
    for name in names:
        _, _, begin, end = entries[name]
        if begin != expected:
            raise _not_tiled(name, begin, before, expected)
        expected, before = end, name
    if expected != data_bytes:
        last = f"the last tensor, {quoted(before)}, ends" if before else "without tensors it ends"
        raise HeaderError(
            f"{last} at byte {expected} of the data, but the file has {data_bytes} bytes of data"
        )
    return {name: entries[name] for name in names}


def _not_tiled(name: str, begin: int, before: str, expected: int) -> HeaderError:
    if not before:
        return HeaderError(f"the first tensor, {quoted(name)}, begins at byte {begin}, not at 0")
    what = "overlap" if begin < expected else "leave a hole"
    return HeaderError(
        f"the tensors {quoted(before)} and {quoted(name)} {what}: the one ends at byte {expected} "
        f"of the data, the other begins at {begin}"
    )
