"""Where the entries of an archive lie, and what a zip says about them. Torch-free.

As torch 2.13 writes it (miniz 3): local headers with zeros for CRC-32 and sizes, padded so that the
data begin at a multiple of 64, and after the data a descriptor with the truth. torch can be told to
compute where storages lie instead of reading their headers, and relies on just that. An entry whose
size or place takes more than 32 bits has a zip64 field.

Numbers in comments are sections of PKWARE's APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from aoserial.storage.pickle.zip import ALL_ONES, ZIP64

ALIGNMENT = 64

_LOCAL = struct.Struct("<4s5H3L2H")  # 4.3.7
_DESCRIPTOR = struct.Struct("<4s3L")  # 4.3.9
_DESCRIPTOR64 = struct.Struct("<4sL2Q")
_CENTRAL = struct.Struct("<4s6H3L5H2L")  # 4.3.12
_END64 = struct.Struct("<4sQ2H2L4Q")  # 4.3.14
_LOCATOR = struct.Struct("<4sLQL")  # 4.3.15
_END = struct.Struct("<4s4H2LH")  # 4.3.16
_FIELD = struct.Struct("<2H")

_DESCRIBED, _UTF8 = 0x0008, 0x0800
_PADDING_ID = 0x4246  # "FB", torch's own
_MADE_BY, _VERSION = 0x031E, 45  # as miniz has them in the zip64 end record


@dataclass(slots=True, eq=False)  # frozen takes five times as long to make
class Placed:
    """An entry and its place: the local header, the data right after it, the descriptor, if any.

    Attributes:
        name: in the archive, its folder included.
        nbytes: of the data.
        header: where the local header begins.
        wide: the zip64 field (4.5.3), if it needs one.
        local: the local header, with what pads it.
    """

    name: bytes
    nbytes: int
    header: int
    wide: bytes
    local: bytes

    @property
    def start(self) -> int:
        """Where the data begin."""
        return self.header + len(self.local)

    @property
    def end(self) -> int:
        """Where the next entry begins."""
        after = _DESCRIPTOR64.size if self.wide else _DESCRIPTOR.size
        return self.start + self.nbytes + (after if self.nbytes else 0)

    def descriptor(self, crc32: int) -> bytes:
        """What follows the data; nothing follows none."""
        if not self.nbytes:
            return b""
        form = _DESCRIPTOR64 if self.wide else _DESCRIPTOR
        return form.pack(b"PK\7\x08", crc32, self.nbytes, self.nbytes)

    def central(self, crc32: int) -> bytes:
        """Its entry in the directory."""
        size, at = min(self.nbytes, ALL_ONES), min(self.header, ALL_ONES)
        fields = (0, 0, _flags(self.nbytes), 0, 0, 0, crc32, size, size)
        lengths = (len(self.name), len(self.wide), 0)
        return _CENTRAL.pack(b"PK\1\2", *fields, *lengths, 0, 0, 0, at) + self.name + self.wide


def place(entries: Iterable[tuple[str, int]], folder: str) -> list[Placed]:
    """Lays out entries, given by their names in the folder and their sizes, one after the other."""
    placed = []
    at = 0
    for name, nbytes in entries:
        entry = _placed(f"{folder}/{name}".encode(), nbytes, at)
        placed.append(entry)
        at = entry.end
    return placed


def _placed(name: bytes, nbytes: int, header: int) -> Placed:
    # sizes and place, as far as they take more than 32 bits
    numbers = [nbytes] * 2 if nbytes >= ALL_ONES else []
    numbers += [header] if header >= ALL_ONES else []
    wide = b""
    if numbers:
        wide = _FIELD.pack(ZIP64, 8 * len(numbers)) + struct.pack(f"<{len(numbers)}Q", *numbers)
    room = -(header + _LOCAL.size + len(name) + len(wide) + _FIELD.size) % ALIGNMENT
    extra = wide + _FIELD.pack(_PADDING_ID, room) + b"Z" * room
    fields = (0, _flags(nbytes), 0, 0, 0, 0, 0, 0, len(name), len(extra))
    return Placed(name, nbytes, header, wide, _LOCAL.pack(b"PK\3\4", *fields) + name + extra)


def _flags(nbytes: int) -> int:
    return _UTF8 | _DESCRIBED if nbytes else _UTF8


def directory(placed: list[Placed], crcs: list[int]) -> bytes:
    """All that follows the entries: the directory, and the records that tell where it is."""
    start = placed[-1].end
    listed = b"".join(entry.central(crc) for entry, crc in zip(placed, crcs, strict=True))
    count, size, end = len(placed), len(listed), start + len(listed)
    wide = (_END64.size - 12, _MADE_BY, _VERSION, 0, 0, count, count, size, start)
    narrow = min(count, 0xFFFF)
    return (
        listed
        + _END64.pack(b"PK\6\6", *wide)
        + _LOCATOR.pack(b"PK\6\7", 0, end, 1)
        + _END.pack(b"PK\5\6", 0, 0, narrow, narrow, min(size, ALL_ONES), min(start, ALL_ONES), 0)
    )
