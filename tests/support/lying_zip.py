"""A zip writer whose every field may lie: central directory, local headers and end records apart.

Left alone it writes what torch 2.13 writes, byte for byte in layout: local headers of zeros, data
at multiples of 64, descriptors, zip64 end records.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DESCRIBED, UTF8 = 0x0008, 0x0800
LOCAL = "<4s5H3L2H"
CENTRAL = "<4s6H3L5H2L"
ONES = 0xFFFFFFFF  # the value is in the zip64 field


@dataclass
class Entry:
    """One entry; the dicts override fields of its records, whatever the truth is."""

    name: str | bytes
    data: bytes = b""
    local: dict[str, Any] = field(default_factory=dict)
    central: dict[str, Any] = field(default_factory=dict)
    descriptor: bytes | None = None  # None: as torch writes it
    described: bool = True
    before: bytes = b""  # bytes smuggled in before the local header
    after: bytes = b""  # and after the descriptor
    listed: bool = True  # whether the directory has it
    written: bool = True  # whether its local part is in the file
    align: int = 64
    crc32: int | None = None


@dataclass
class End:
    """Overrides of the end records."""

    end: dict[str, Any] = field(default_factory=dict)
    wide: dict[str, Any] = field(default_factory=dict)
    locator: dict[str, Any] = field(default_factory=dict)
    zip64: bool = True
    comment: bytes = b""
    before_end: bytes = b""
    before_directory: bytes = b""


def build(
    entries: list[Entry], end: End | None = None, *, prefix: bytes = b"", suffix: bytes = b""
) -> bytes:
    """The archive. Offsets are true, wherever no override says otherwise."""
    end = end or End()
    out = bytearray(prefix)
    central = bytearray()
    listed = 0
    for entry in entries:
        out += entry.before
        header = len(out)
        if entry.written:
            out += _local(entry, header)
        out += entry.after
        if entry.listed:
            central += _central(entry, header)
            listed += 1
    out += end.before_directory
    start = len(out)
    out += central
    out += _end(end, listed, len(central), start)
    return bytes(out) + suffix


def _truth(entry: Entry) -> tuple[bytes, int, int, int]:
    name = entry.name.encode() if isinstance(entry.name, str) else entry.name
    flags = UTF8 | (DESCRIBED if entry.described and entry.data else 0)
    crc = zlib.crc32(entry.data) if entry.crc32 is None else entry.crc32
    return name, flags, crc, len(entry.data)


def _local(entry: Entry, header: int) -> bytes:
    name, flags, crc, size = _truth(entry)
    told = {"crc": crc, "packed": size, "size": size}
    if flags & DESCRIBED:
        told = dict.fromkeys(told, 0)
    fields: dict[str, Any] = {
        "signature": b"PK\3\4",
        "version": 0,
        "flags": flags,
        "method": 0,
        "time": 0,
        "date": 0,
        **told,
        "name": name,
        "extra": None,
    }
    fields |= entry.local
    extra = fields["extra"]
    if extra is None:
        room = -(header + 30 + len(fields["name"]) + 4) % entry.align if entry.align else 0
        extra = b"FB" + struct.pack("<H", room) + b"Z" * room
    raw = struct.pack(
        LOCAL,
        fields["signature"],
        fields["version"],
        fields["flags"],
        fields["method"],
        fields["time"],
        fields["date"],
        fields["crc"],
        fields["packed"],
        fields["size"],
        fields.get("name_length", len(fields["name"])),
        fields.get("extra_length", len(extra)),
    )
    descriptor = entry.descriptor
    if descriptor is None:
        described = flags & DESCRIBED
        descriptor = struct.pack("<4s3L", b"PK\7\x08", crc, size, size) if described else b""
    return raw + fields["name"] + extra + entry.data + descriptor


def _central(entry: Entry, header: int) -> bytes:
    name, flags, crc, size = _truth(entry)
    fields: dict[str, Any] = {
        "signature": b"PK\1\2",
        "made": 0,
        "version": 0,
        "flags": flags,
        "method": 0,
        "time": 0,
        "date": 0,
        "crc": crc,
        "packed": size,
        "size": size,
        "name": name,
        "extra": b"",
        "comment": b"",
        "disk": 0,
        "internal": 0,
        "external": 0,
        "header": header,
    }
    fields |= entry.central
    return (
        struct.pack(
            CENTRAL,
            fields["signature"],
            fields["made"],
            fields["version"],
            fields["flags"],
            fields["method"],
            fields["time"],
            fields["date"],
            fields["crc"],
            fields["packed"],
            fields["size"],
            fields.get("name_length", len(fields["name"])),
            fields.get("extra_length", len(fields["extra"])),
            fields.get("comment_length", len(fields["comment"])),
            fields["disk"],
            fields["internal"],
            fields["external"],
            fields["header"],
        )
        + fields["name"]
        + fields["extra"]
        + fields["comment"]
    )


def _end(end: End, count: int, size: int, start: int) -> bytes:
    told = {"count": count, "here": count, "size": size, "start": start}
    wide = {**told, "length": 44, "disk": 0, "first": 0, "signature": b"PK\6\6"} | end.wide
    locator = {"disk": 0, "at": start + size, "disks": 1, "signature": b"PK\6\7"} | end.locator
    narrow = {**told, "disk": 0, "first": 0, "signature": b"PK\5\6"} | end.end
    out = b""
    if end.zip64:
        out += struct.pack(
            "<4sQ2H2L4Q",
            wide["signature"],
            wide["length"],
            0x31E,
            45,
            wide["disk"],
            wide["first"],
            wide["here"],
            wide["count"],
            wide["size"],
            wide["start"],
        )
        out += struct.pack(
            "<4sLQL", locator["signature"], locator["disk"], locator["at"], locator["disks"]
        )
    out += end.before_end
    return (
        out
        + struct.pack(
            "<4s4H2LH",
            narrow["signature"],
            narrow["disk"],
            narrow["first"],
            min(narrow["here"], 0xFFFF),
            min(narrow["count"], 0xFFFF),
            narrow["size"],
            narrow["start"],
            narrow.get("comment_length", len(end.comment)),
        )
        + end.comment
    )


def write_wide(path: Path, entries: list[tuple[str, int, bytes]]) -> None:
    """Writes an archive of any size, truthfully and sparse: (name, zero bytes, bytes after them).

    Sizes and places of 4 GiB and more go where miniz puts them; there are no checksums, as when
    torch was told not to compute them.
    """
    central = b""
    with path.open("wb") as out:
        for name, zeros, tail in entries:
            header, size = out.tell(), zeros + len(tail)
            sizes, place = size >= ONES, header >= ONES
            known = [header] if place else []
            local = _wide_field([size, 0, *known] if sizes else known)
            listed = _wide_field([size, size, *known] if sizes else known)
            flags = UTF8 | DESCRIBED if size else UTF8
            out.write(
                struct.pack(LOCAL, b"PK\3\4", 0, flags, 0, 0, 0, 0, 0, 0, len(name), len(local))
            )
            out.write(name.encode() + local)
            out.seek(zeros, 1)
            out.write(tail)
            if size:
                form = "<4sL2Q" if sizes or place else "<4s3L"
                out.write(struct.pack(form, b"PK\7\x08", 0, size, size))
            fields = {"size": ONES, "packed": ONES} if sizes else {"size": size, "packed": size}
            fields |= {"crc": 0, "extra": listed, "flags": flags}
            central += _central(Entry(name, central=fields), min(header, ONES))
        start = out.tell()
        end = End(end={"start": min(start, ONES)})
        out.write(central + _end(end, len(entries), len(central), start))


def _wide_field(values: list[int]) -> bytes:
    return struct.pack(f"<2H{len(values)}Q", 1, 8 * len(values), *values) if values else b""


def archive(
    pickle: bytes, storages: dict[str, bytes] | None = None, root: str = "a"
) -> list[Entry]:
    """The entries of a torch.save archive."""
    return [
        Entry(f"{root}/data.pkl", pickle),
        Entry(f"{root}/byteorder", b"little"),
        *(Entry(f"{root}/data/{key}", data) for key, data in (storages or {}).items()),
        Entry(f"{root}/version", b"3\n"),
    ]
