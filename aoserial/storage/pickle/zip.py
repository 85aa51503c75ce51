"""The directory of a zip archive, read so strictly that every reader sees the same.

Torch-free, and without the standard library's `zipfile`, which accepts far more. Zip says
everything twice, and readers differ in whom they believe: the central directory or the local
headers, the first of two entries of a name or the last, the first archive of two or the second.
Here both must agree, and the entries with their headers must tile the file from its first byte to
the directory (`entries`), so there is nothing left to differ about.

Numbers in comments are sections of PKWARE's APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from aoserial.errors import ContainerError, escape
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.source import Source

_END = struct.Struct("<4s4H2LH")  # 4.3.16
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12

ALL_ONES = 0xFFFFFFFF  # a 32-bit field whose value is in the zip64 field
ZIP64 = 0x0001


@dataclass(slots=True, eq=False)  # frozen takes five times as long to make
class Listed:
    """An entry as the central directory has it."""

    name: bytes
    flags: int
    method: int
    crc32: int
    packed: int
    nbytes: int
    header: int


@dataclass(frozen=True, slots=True)
class Directory:
    """The central directory: its entries, and where in the file it begins."""

    listed: list[Listed]
    start: int

    @property
    def names(self) -> list[str]:
        """The names that tell what kind of archive it is: not those of numbered entries."""
        return [
            entry.name.decode(errors="replace")
            for entry in self.listed
            if not entry.name[-1:].isdigit()
        ]


def read_directory(source: Source, limits: Limits) -> Directory:
    """The central directory alone; `entries.read_entries` says whether the rest agrees with it.

    Raises:
        ContainerError: it is no zip archive, or its directory is malformed.
        LimitError: a budget is spent.
    """
    count, start, size = _find_directory(source)
    limits.check("entries", count)
    limits.check("directory_bytes", size)
    return Directory(_read_listed(source.pread(start, size), count), start)


# -- the end of the file ------------------------------------------------------------------------


def _find_directory(source: Source) -> tuple[int, int, int]:
    """How many entries the central directory has, where it begins, how many bytes it is."""
    end = source.size - _END.size
    if end < 0 or source.pread(end, 4) != b"PK\5\6":
        raise ContainerError(
            "it does not end like a zip archive: it is cut off, or something follows it"
        )
    _, disk, first_disk, here, count, size, start, comment = _END.unpack(
        source.pread(end, _END.size)
    )
    if comment:
        raise ContainerError("its end record has a comment, which could hide another archive")
    if here != count or not {disk, first_disk} <= {0, 0xFFFF}:
        raise ContainerError("it is one of several volumes")
    wide = _find_zip64(source, end)
    if wide is not None:
        end, *values = wide
        for found, narrow, ones in zip(
            values, (count, size, start), (0xFFFF, ALL_ONES, ALL_ONES), strict=True
        ):
            if narrow not in {found, ones}:
                raise ContainerError(
                    f"its two end records disagree: one says {found}, the other {narrow}"
                )
        count, size, start = values
    if start + size != end:
        raise ContainerError(
            f"its directory is {size} bytes from {start} on, but must end at byte {end}, where "
            "the end record begins: something was put before or into the archive"
        )
    return count, start, size


def _find_zip64(source: Source, end: int) -> tuple[int, int, int, int] | None:
    """Where the zip64 end record begins, its count, size and start; None when there is none."""
    locator_at = end - _LOCATOR.size
    if locator_at < 0 or source.pread(locator_at, 4) != b"PK\6\7":
        return None
    _, disk, wide_at, disks = _LOCATOR.unpack(source.pread(locator_at, _LOCATOR.size))
    if disk or disks > 1:
        raise ContainerError("it is one of several volumes")
    if wide_at != locator_at - _END64.size:
        raise ContainerError(
            f"its zip64 locator points to byte {wide_at}, not to the record right before it"
        )
    signature, length, _, _, disk, first_disk, here, count, size, start = _END64.unpack(
        source.pread(wide_at, _END64.size)
    )
    if signature != b"PK\6\6" or length != _END64.size - 12:
        raise ContainerError("its zip64 end record is malformed")
    if here != count or disk or first_disk:
        raise ContainerError("it is one of several volumes")
    return wide_at, count, size, start


# -- the central directory ----------------------------------------------------------------------


def _read_listed(raw: bytes, count: int) -> list[Listed]:
    listed = []
    seen: set[bytes] = set()
    at = 0
    while at < len(raw):
        if len(raw) - at < _CENTRAL.size or raw[at : at + 4] != b"PK\1\2":
            raise ContainerError(f"its directory has no entry at byte {at}")
        entry, at = _read_one(raw, at)
        # Windows and macOS could not tell these apart, and neither could a person
        folded = entry.name.lower()
        if folded in seen:
            raise ContainerError(f"the entry {shown(entry.name)} occurs twice")
        seen.add(folded)
        listed.append(entry)
    if len(listed) != count:
        raise ContainerError(f"its directory has {len(listed)} entries and says {count}")
    return listed


def _read_one(raw: bytes, at: int) -> tuple[Listed, int]:
    (
        _, _, _, flags, method, _, _, crc32, packed, nbytes,
        name_length, extra_length, comment_length, disk, _, _, header,
    ) = _CENTRAL.unpack_from(raw, at)  # fmt: skip
    name_at = at + _CENTRAL.size
    extra_at = name_at + name_length
    end = extra_at + extra_length + comment_length
    if end > len(raw):
        raise ContainerError(f"its directory is cut off in the entry at byte {at}")
    name = raw[name_at:extra_at]
    if comment_length:
        raise ContainerError(f"the entry {shown(name)} has a comment")
    extra = None
    if extra_length:
        extra = extra_fields(raw[extra_at : extra_at + extra_length], name).get(ZIP64)
    if extra or ALL_ONES in {nbytes, packed, header}:
        nbytes, packed, header = _widened((nbytes, packed, header), extra, name)
    if disk:
        raise ContainerError(f"the entry {shown(name)} lies on another volume")
    return Listed(name, flags, method, crc32, packed, nbytes, header), end


def _widened(values: tuple[int, int, int], extra: bytes | None, name: bytes) -> list[int]:
    """The values, those that are all ones taken from the zip64 field, which has no others."""
    wanted = sum(value == ALL_ONES for value in values)
    if len(extra or b"") != 8 * wanted:
        raise ContainerError(
            f"the zip64 field of the entry {shown(name)} does not fit its other fields"
        )
    wide = iter(struct.unpack(f"<{wanted}Q", extra or b""))
    return [next(wide) if value == ALL_ONES else value for value in values]


def extra_fields(raw: bytes, name: bytes) -> dict[int, bytes]:
    """The extra fields by their id. torch pads with one of its own, `FB`."""
    fields: dict[int, bytes] = {}
    at = 0
    while at < len(raw):
        kind = int.from_bytes(raw[at : at + 2], "little")
        length = int.from_bytes(raw[at + 2 : at + 4], "little")
        if at + 4 + length > len(raw) or kind in fields:
            raise ContainerError(f"the extra fields of the entry {shown(name)} are malformed")
        fields[kind] = raw[at + 4 : at + 4 + length]
        at += 4 + length
    return fields


def shown(name: bytes) -> str:
    return f"'{escape(name[:120].decode(errors='backslashreplace'))}'"
