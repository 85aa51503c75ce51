"""The three containers of torch.save, around a pickle and storages of one's own."""

from __future__ import annotations

import io
import pickle
import struct
import tarfile
from collections.abc import Callable

from support import lying_zip

MAGIC = 0x1950A86A20F9469CFC6C
FLOATS = struct.pack("<4f", 1, 2, 3, 4)


def zipped(stream: bytes, storages: dict[str, bytes] | None = None) -> bytes:
    storages = {"0": FLOATS} if storages is None else storages
    return lying_zip.build(lying_zip.archive(stream, storages))


def legacy(
    stream: bytes,
    storages: dict[str, tuple[int, bytes]] | None = None,
    *,
    magic: object = MAGIC,
    protocol: object = 1001,
    facts: object = None,
    keys: object = None,
) -> bytes:
    """Five pickles and, for each storage, its count and bytes."""
    storages = {} if storages is None else storages
    facts = {"little_endian": True, "protocol_version": 1001} if facts is None else facts
    parts = [pickle.dumps(each, 2) for each in (magic, protocol, facts)]
    parts += [stream, pickle.dumps(list(storages) if keys is None else keys, 2)]
    for count, data in storages.values():
        parts += [struct.pack("<q", count), data]
    return b"".join(parts)


def tarred(
    stream: bytes,
    storages: bytes | None = None,
    tensors: bytes | None = None,
    *,
    more: dict[str, bytes] | None = None,
    edit: Callable[[tarfile.TarInfo], None] = lambda info: None,
) -> bytes:
    """A tar of 2016, written by the standard library as torch did then."""
    members = {
        "sys_info": pickle.dumps({"little_endian": True}, 2),
        "pickle": stream,
        "storages": pickle.dumps(0, 2) + pickle.dumps([], 2) if storages is None else storages,
        "tensors": pickle.dumps(0, 2) if tensors is None else tensors,
        **(more or {}),
    }
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:", format=tarfile.PAX_FORMAT) as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            info.mtime = 1480000000.25  # a fraction, so that there are PAX headers, as there were
            edit(info)
            tar.addfile(info, io.BytesIO(data))
    return out.getvalue()


CONTAINERS: dict[str, Callable[[bytes], bytes]] = {
    "zip": zipped,
    "legacy": legacy,
    "tar": tarred,
}
