"""Writes an archive of torch.save without torch.save, atomically. Torch-free to import.

What cannot be written is refused before a byte is: the pickle is made first, and all there is to
the archive but checksums is known from it. Then the bytes of storages pass through in pieces.
"""

from __future__ import annotations

import os
import zlib
from typing import NamedTuple

from aoserial.errors import AoserialError, IntegrityError
from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.pickle.dtypes import swapped
from aoserial.storage.pickle.values import Value
from aoserial.storage.pickle.writing import Record, emit
from aoserial.storage.pickle.writing.layout import ALIGNMENT, Placed, directory, place
from aoserial.storage.pickle.writing.whereabouts import path_to
from aoserial.storage.progress import Progress

# Large enough that a system call costs nothing beside it, small enough to stay in the cache
_CHUNK_BYTES = 2 * 2**20

# torch names it for the file; a fixed one keeps equal trees equal files, whatever they are called
_FOLDER = "archive"


class Saved(NamedTuple):
    """What was written.

    Attributes:
        nbytes: length of the file.
        storages: how many there are in it.
    """

    nbytes: int
    storages: int


class _Entry(NamedTuple):
    """An entry to be written: its name in the folder, its size, and its bytes or where they are."""

    name: str
    nbytes: int
    data: bytes | Record


def write_archive(
    path: str | os.PathLike[str],
    root: Value,
    *,
    durability: Durability = "fsync",
    progress: Progress | None = None,
) -> Saved:
    """Saves a tree of values (`PickleFile.tree`) as an archive that `torch.load` opens.

    Args:
        path: the target; see `AtomicFile`. It may be the file that the storages lie in.
        root: the tree. Tensors may be parts of any format, or `StoragePart`s of a `MemoryStorage`.
        durability: see `Durability`; "fsync+verify" reads the file back and checks every byte.
        progress: called now and then with the bytes done and the bytes in all.

    Raises:
        UnsupportedTensorError: the tree holds what no archive can; before anything is written.
        SaveError: the file system refused; the target is as it was unless `state` says otherwise.
        Whatever reading a storage raises: the target is as it was.
    """
    pickle, records = emit(root)
    entries = _entries(pickle, records)
    placed = place([(entry.name, entry.nbytes) for entry in entries], _FOLDER)
    crcs = [0] * len(entries)
    size = placed[-1].end + len(directory(placed, crcs))

    def verify(file: AtomicFile) -> None:
        _verify(file, placed, crcs)

    with AtomicFile(path, durability=durability, size=size, verify=verify) as file:
        out = _Buffered(file, progress)
        for index, (entry, where) in enumerate(zip(entries, placed, strict=True)):
            out.write(where.local)
            crcs[index] = _write_data(out, entry.data, root)
            out.write(where.descriptor(crcs[index]))
        out.write(directory(placed, crcs))
        out.flush()
    return Saved(size, len(records))


class _Buffered:
    """Gathers small pieces: most storages are small, and their headers smaller."""

    def __init__(self, file: AtomicFile, progress: Progress | None) -> None:
        self._file = file
        self._progress = progress
        self._buffer = bytearray()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if len(self._buffer) + len(data) > _CHUNK_BYTES:
            self.flush()
        if len(data) < _CHUNK_BYTES:
            self._buffer += data
        else:
            self._put(data)

    def flush(self) -> None:
        self._put(self._buffer)
        self._buffer.clear()

    def _put(self, data: bytes | bytearray | memoryview) -> None:
        self._file.write(data)
        if self._progress is not None:
            self._progress(self._file.position, self._file.size)


def _entries(pickle: bytes, records: list[Record]) -> list[_Entry]:
    """All entries, in torch's order."""
    before = {
        "data.pkl": pickle,
        ".format_version": b"1",
        ".storage_alignment": b"%d" % ALIGNMENT,
        "byteorder": b"little",
    }
    return [
        *(_Entry(name, len(data), data) for name, data in before.items()),
        *(_Entry(f"data/{record.key}", record.nbytes, record) for record in records),
        _Entry("version", 2, b"3\n"),
    ]


def _write_data(out: _Buffered, data: bytes | Record, root: Value) -> int:
    """Writes the bytes of an entry, those of numbers little-endian, and returns their CRC-32."""
    if isinstance(data, bytes):
        out.write(data)
        return zlib.crc32(data)
    storage, found = data.storage, 0
    turned = storage.swapped and data.width > 1
    try:
        for chunk in storage.chunks(data.start, data.nbytes, _CHUNK_BYTES):
            piece = swapped(chunk, data.width) if turned else chunk
            found = zlib.crc32(piece, found)
            out.write(piece)
    except AoserialError as error:
        error.locate(file=storage.path, name=path_to(root, data.value))
        raise
    return found


def _verify(file: AtomicFile, placed: list[Placed], crcs: list[int]) -> None:
    """Reads the finished file back; raises `IntegrityError` unless it is what was written."""
    for entry, crc in zip(placed, crcs, strict=True):
        whole = file.pread(len(entry.local), entry.header) == entry.local
        end, found = entry.start + entry.nbytes, 0
        for at in range(entry.start, end, _CHUNK_BYTES):
            found = zlib.crc32(file.pread(min(_CHUNK_BYTES, end - at), at), found)
        after = entry.descriptor(crc)
        if not whole or found != crc or file.pread(len(after), end) != after:
            raise IntegrityError(
                f"the entry '{entry.name.decode()}' read back from the new file is not the one "
                "written"
            )
    told = directory(placed, crcs)
    if file.pread(len(told), placed[-1].end) != told:
        raise IntegrityError("the directory read back from the new file is not the one written")
