"""The journal of a header that is rewritten in place, and what readers do with one. Torch-free.

Beside `name` lies `.name.aoserial-journal` while its header is written over: both headers, with a
digest, on disk before the first byte of the file changes and removed when the last one has. Its
writer holds a lock on it. So whoever finds one knows a whole header, whatever the file holds.

A journal is believed only when the header in the file is the old one, the new one, or a mix of just
these two: one that was left beside a file since replaced is not its own.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from dataclasses import dataclass

from aoserial.errors import escape
from aoserial.storage.closing import close_read
from aoserial.storage.disk import fsync, sync_folder, write_at
from aoserial.storage.source import Source
from aoserial.storage.temporary import locked

_MAGIC = b"aoserial journal 1\n"
_DIGEST_BYTES = 32
_FRAME_BYTES = len(_MAGIC) + 8 + _DIGEST_BYTES

# How often a header that changes between two looks is read again. A rewriting takes milliseconds,
# and has to find one of its own each time.
_LOOKS = 100

# File systems allow 255 in all; a longer one's journal is named for a digest of it.
_NAME_BYTES = 200

_PIECE_BYTES = 4096  # what disks and caches write at once: few pieces are a mix in themselves

_UNREADABLE = b"unreadable"  # stands for a journal that is no use; is none itself

_USELESS = (
    "; beside it lies {}, the journal of a header that was being rewritten in place, but it is "
    "damaged, another file's or not to be read, so no header can be restored from it"
)


@dataclass(frozen=True, slots=True)
class Journal:
    """Both headers of a file whose header is being rewritten, of equal length."""

    old: bytes
    new: bytes

    def encode(self) -> bytes:
        """The journal's file: a mark, the length of a header, both headers, SHA-256 of all that."""
        content = _MAGIC + len(self.old).to_bytes(8, "little") + self.old + self.new
        return content + hashlib.sha256(content).digest()

    @classmethod
    def decode(cls, data: bytes) -> Journal | None:
        """What `encode` made; None for anything else."""
        content, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
        if not content.startswith(_MAGIC) or hashlib.sha256(content).digest() != digest:
            return None
        start = len(_MAGIC) + 8
        length = int.from_bytes(content[len(_MAGIC) : start], "little")
        return cls(content[start : start + length], content[start + length :])

    def whole(self, found: bytes) -> bytes | None:
        """The header that counts when the file has `found`; None when that is of another file."""
        if found in (self.old, self.new):
            return found
        return self.old if _is_mix(found, self.old, self.new) else None


def journal_path(path: str) -> str:
    """Where the journal of a file lies: beside it, wherever symlinks lead."""
    folder, name = os.path.split(os.path.realpath(path))
    if len(os.fsencode(name)) > _NAME_BYTES:
        name = hashlib.sha256(os.fsencode(name)).hexdigest()
    return os.path.join(folder, f".{name}.aoserial-journal")


def settled_header(source: Source, length: int) -> tuple[bytes, str]:
    """A header of `length` bytes that is whole, even while it is being rewritten, or after a crash.

    A header that was left half written is written back where that may be done.

    Returns:
        Its text; and, to be said should it be malformed, that there is a journal of no use.
    """
    path = journal_path(source.path)
    found = source.pread(8, length)
    for _ in range(_LOOKS):
        data = _read(path, source, length)
        journal = Journal.decode(data) if data is not None else None
        header = journal.whole(found) if journal is not None else None
        if data is not None and (header is not None or _is_unfinished(data)):
            settle(source, path, length)
        if header is not None:
            return header, ""
        # No journal that tells, so no rewriting goes on that has touched the header. One that was
        # going on before has ended since, and a second look would differ from the first.
        before, found = found, source.pread(8, length)
        if before == found:
            break
    return found, "" if data is None else _USELESS.format(escape(path))


def drop_journal(source: Source) -> None:
    """Removes a journal of no use beside a file whose header is known to be whole, if it may be."""
    path = journal_path(source.path)
    with locked(path) as left, suppress(OSError):
        if left is not None:
            os.unlink(path)


def settle(source: Source, path: str, length: int) -> None:
    """Brings a half written header to an end and removes its journal, where both may be done.

    Not while the journal's writer lives, and not by whom file or folder are closed to.
    """
    with locked(path) as journal_file, suppress(OSError):
        if journal_file is None or not _is_to_be_believed(journal_file, source):
            return
        data = _read_all(journal_file, length)
        if _is_unfinished(data):  # the header is not touched before the journal is there whole
            os.unlink(path)
            return
        journal = Journal.decode(data)
        if journal is None:
            return
        target = os.open(os.path.realpath(source.path), os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            if not os.path.samestat(os.fstat(target), os.fstat(source.descriptor)):
                return
            found = source.pread(8, length)
            header = journal.whole(found)
            if header is None:
                return
            if header != found:
                write_at(target, header, 8)
            fsync(target)
            os.unlink(path)
            sync_folder(os.path.dirname(path))
        finally:
            close_read(target)


def _read(path: str, source: Source, length: int) -> bytes | None:
    """The bytes of a file's journal; None when there is none, a word when it may not be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError:
        return _UNREADABLE
    try:
        believed = _is_to_be_believed(descriptor, source)
        return _read_all(descriptor, length) if believed else _UNREADABLE
    except OSError:
        return _UNREADABLE
    finally:
        close_read(descriptor)


def _is_to_be_believed(descriptor: int, source: Source) -> bool:
    """Whether the file's owner wrote a journal: others may perhaps add files to its folder."""
    return os.fstat(descriptor).st_uid in (os.fstat(source.descriptor).st_uid, 0)


def _read_all(descriptor: int, length: int) -> bytes:
    """A journal for headers of that length, and of a longer file one byte more."""
    pieces: list[bytes] = []
    left = _FRAME_BYTES + 2 * length + 1
    while left and (piece := os.read(descriptor, left)):
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def _is_unfinished(data: bytes) -> bool:
    """Whether a journal's writer ended before it was whole: the header was not touched by then.

    After a power failure it may also have its length and nothing else.
    """
    if not any(data):
        return True
    promised = int.from_bytes(data[len(_MAGIC) : len(_MAGIC) + 8], "little")
    short = len(data) < _FRAME_BYTES + 2 * promised
    return short and data.startswith(_MAGIC[: len(data)])


def _is_mix(found: bytes, old: bytes, new: bytes) -> bool:
    """Whether each byte of `found` is the one of either."""
    if not len(found) == len(old) == len(new):
        return False
    for start in range(0, len(found), _PIECE_BYTES):
        pieces = [text[start : start + _PIECE_BYTES] for text in (found, old, new)]
        if pieces[0] in pieces[1:]:
            continue
        if not all(byte in (one, other) for byte, one, other in zip(*pieces, strict=True)):
            return False
    return True
