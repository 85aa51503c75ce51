"""The entries of a zip archive, each checked against the directory. Torch-free.

What torch 1.6 to 2.14 writes (miniz 3): local headers with zeros for CRC and sizes, padding so that
the data begins at a multiple of 64, and a descriptor with the truth after the data, unless there is
none. Archives that other tools wrote pass if they tile the file as well.

Entries are stored, never compressed: torch stores them, and maps them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from aoserial.errors import ContainerError
from aoserial.storage.pickle.zip import ALL_ONES, ZIP64, Directory, Listed, extra_fields, shown
from aoserial.storage.source import Source

_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_LOCAL_BYTES = _LOCAL.size
_DESCRIPTOR = struct.Struct("<4s3L")  # 4.3.9, with the signature, as everybody writes it
_DESCRIPTOR64 = struct.Struct("<4sL2Q")

_ENCRYPTED, _DESCRIBED, _UTF8 = 0x0001, 0x0008, 0x0800
_METHODS = {8: "deflated", 9: "deflated (64)", 12: "bzip2", 14: "LZMA", 93: "zstandard", 95: "xz"}

# A local header is read with this much after its name: torch pads the data to 64 bytes
_USUAL_EXTRA = 80

# What torch pads with, and nothing else, as nearly always: an extra field of its own
_PADDING = frozenset(b"FB" + struct.pack("<H", room) + b"Z" * room for room in range(_USUAL_EXTRA))

# Local headers lie close together where storages are small
_WINDOW_BYTES = 64 * 2**10


@dataclass(slots=True, eq=False)  # frozen takes five times as long to make
class Entry:
    """One file of an archive: where its bytes are, and the CRC-32 of them (0: not computed)."""

    name: str
    start: int
    nbytes: int
    crc32: int


def read_entries(source: Source, directory: Directory) -> list[Entry]:
    """The entries in the order in which they lie in the file.

    Raises:
        ContainerError: readers could disagree about them, or would have to unpack them.
    """
    read = _reader(source)
    entries = []
    at = 0
    for entry in sorted(directory.listed, key=lambda entry: entry.header):
        if entry.flags & ~(_DESCRIBED | _UTF8) or entry.method or entry.packed != entry.nbytes:
            raise _not_stored(entry)
        data = _check_local(read, entry, at, directory.start)
        entries.append(Entry(_text(entry.name), data, entry.nbytes, entry.crc32))
        at = data + entry.nbytes
        if entry.flags & _DESCRIBED:
            at = _check_descriptor(read, entry, at, directory.start)
    if at != directory.start:
        raise ContainerError(
            f"its entries end at byte {at}, but its directory begins at {directory.start}: there "
            "is something between them"
        )
    return entries


# Reads so many bytes from there; they must lie inside the file
Read: TypeAlias = Callable[[int, int], bytes]


def _reader(source: Source) -> Read:
    """Reads small pieces that lie one after the other: mapped, or many to a system call."""
    if source.mapped:
        mapping = source.mapping
        return lambda start, count: mapping[start : start + count]
    window, window_at = b"", 0

    def read(start: int, count: int) -> bytes:
        nonlocal window, window_at
        at = start - window_at
        if not 0 <= at <= len(window) - count:
            window = source.pread(start, min(max(count, _WINDOW_BYTES), source.size - start))
            window_at, at = start, 0
        return window[at : at + count]

    return read


def _not_stored(entry: Listed) -> ContainerError:
    if entry.flags & _ENCRYPTED:
        what = "is encrypted"
    elif entry.flags & ~(_DESCRIBED | _UTF8):
        what = f"has flags of unknown meaning: 0x{entry.flags:04x}"
    elif entry.method:
        packed = _METHODS.get(entry.method, f"packed by method {entry.method}")
        what = f"is {packed}; torch.save stores its entries, and only stored ones are read"
    else:
        what = f"is stored, yet {entry.packed} bytes make {entry.nbytes}"
    return ContainerError(f"the entry {shown(entry.name)} {what}")


def _check_local(read: Read, entry: Listed, expected: int, end: int) -> int:
    """Where the data of an entry begins; raises unless its local header agrees with `entry`.

    Args:
        expected: where the header must begin: where the entry before ends.
        end: where the directory begins.
    """
    if entry.header != expected:
        what = "overlaps the entry before it" if entry.header < expected else "leaves a gap"
        raise ContainerError(
            f"the entry {shown(entry.name)} begins at byte {entry.header} instead of {expected}: "
            f"it {what}"
        )
    if end - expected < _LOCAL_BYTES:
        raise _disagreement(entry, "it begins too late to have a local header")
    raw = read(expected, min(_LOCAL_BYTES + len(entry.name) + _USUAL_EXTRA, end - expected))
    (
        signature, _, flags, method, _, _, crc32, packed, nbytes, name_length, extra_length,
    ) = _LOCAL.unpack_from(raw)  # fmt: skip
    extra_at: int = _LOCAL_BYTES + name_length
    length: int = extra_at + extra_length
    data = expected + length
    if signature != b"PK\3\4" or data + entry.nbytes > end:
        raise _disagreement(entry, f"no such entry is at byte {expected}, or it is cut off")
    if length > len(raw):
        raw = read(expected, length)
    if raw[_LOCAL_BYTES:extra_at] != entry.name or flags != entry.flags or method:
        raise _disagreement(entry, "its local header disagrees about what it is")
    extra = raw[extra_at:length]
    wide = b"" if extra in _PADDING else extra_fields(extra, entry.name).get(ZIP64, b"")
    if not _agrees(entry, (crc32, packed, nbytes), wide):
        raise _disagreement(entry, "its local header disagrees about its size or CRC-32")
    return data


def _agrees(entry: Listed, told: tuple[int, int, int], wide_field: bytes) -> bool:
    """Whether CRC-32 and sizes in a local header, with its zip64 field, are those of `entry`."""
    nbytes = entry.nbytes
    # Written before the data was, it is all zero, and the truth is in the descriptor.
    described = bool(entry.flags & _DESCRIBED) and told == (0, 0, 0)
    if not wide_field:
        return described or told == (entry.crc32, nbytes, nbytes)
    if len(wide_field) % 8:
        return False
    wide = struct.unpack(f"<{len(wide_field) // 8}Q", wide_field)
    if described:
        # Miniz puts the size, zero for the packed size it does not know yet, and the place here.
        return {nbytes, entry.header, 0}.issuperset(wide)
    if told == (entry.crc32, ALL_ONES, ALL_ONES):
        return wide[:2] == (nbytes, nbytes) and {nbytes, entry.header}.issuperset(wide)
    return told == (entry.crc32, nbytes, nbytes) and {nbytes, entry.header}.issuperset(wide)


def _check_descriptor(read: Read, entry: Listed, start: int, end: int) -> int:
    """Where the descriptor after the data of an entry ends; raises unless it agrees.

    Miniz writes 64-bit sizes where the entry needs a zip64 field: for its size, or its place.
    """
    wide = entry.nbytes >= ALL_ONES or entry.header >= ALL_ONES
    form = _DESCRIPTOR64 if wide else _DESCRIPTOR
    after = start + form.size
    told = form.unpack(read(start, form.size)) if after <= end else None
    if told != (b"PK\7\x08", entry.crc32, entry.nbytes, entry.nbytes):
        raise _disagreement(entry, "what follows its data disagrees about its size or CRC-32")
    return after


def _disagreement(entry: Listed, what: str) -> ContainerError:
    return ContainerError(f"the entry {shown(entry.name)} is not as the directory says: {what}")


def _text(name: bytes) -> str:
    """A name as text. It must be UTF-8, whatever the flag says: torch sets it for all."""
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise ContainerError(f"the name of the entry {shown(name)} is not UTF-8") from None
