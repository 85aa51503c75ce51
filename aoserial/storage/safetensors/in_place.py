"""A file given another header in place, its data left where it lies. Torch-free.

Other programs that read the file meanwhile may see half of either header; our own do not, see
`journal`.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from contextlib import suppress

from aoserial.errors import ChangedWhileReadingError, SaveError
from aoserial.storage.closing import close_read
from aoserial.storage.disk import fsync, saving, sync_folder, write_at
from aoserial.storage.dtypes import BY_NAME
from aoserial.storage.part import Part
from aoserial.storage.safetensors.copying import stored_in
from aoserial.storage.safetensors.journal import Journal, journal_path, settle
from aoserial.storage.safetensors.layout import render_header
from aoserial.storage.safetensors.reader import FilePart, SafetensorsFile
from aoserial.storage.safetensors.writer import Finish
from aoserial.storage.source import Source
from aoserial.storage.temporary import create_locked, is_at, locked

# A journal that another has is waited for so long: rewriting a header takes no longer.
_ATTEMPTS = 100
_PAUSE_SECONDS = 0.005


def header_in_place(
    parts: Mapping[str, Part],
    metadata: Mapping[str, str],
    *,
    checksums: Mapping[str, int],
    finish: Finish,
) -> tuple[SafetensorsFile, bytes] | None:
    """The file that parts lie in, and a header that makes it hold just these.

    None when there is no such header: parts that are not the bytes of one file, each used once and
    none left over; or more text than the old header has room for.

    Args:
        parts, metadata, finish: as for `write_safetensors`.
        checksums: CRC-32 of each part, by name.
    """
    stored = {name: stored_in(part) for name, part in parts.items()}
    found = [part for part in stored.values() if part is not None]
    files = {id(part.file): part.file for part in found}
    if len(found) != len(parts) or len(files) != 1:
        return None
    (file,) = files.values()
    if sorted(part.key for part in found) != sorted(file.header.entries):
        return None

    def place(name: str) -> tuple[int, int, str]:  # as readers sort them
        part = stored[name]
        assert isinstance(part, FilePart)
        return part.offset, part.nbytes, name

    ordered = {name: parts[name] for name in sorted(parts, key=place)}
    if any(place(name)[0] % BY_NAME[part.dtype].itemsize for name, part in ordered.items()):
        return None  # a view of larger elements than the bytes were laid out for
    text = render_header(ordered, metadata, slack=0).rstrip(b" ")
    room = len(file.header.raw)
    if len(text) > room:
        return None
    return file, finish(text.ljust(room), [checksums[name] for name in ordered])


def rewrite_header(source: Source, old: bytes, new: bytes) -> bool:
    """Writes `new` over `old`, the header of an opened file; whole at any moment for our readers.

    Returns:
        False when the file cannot be rewritten in place, and is untouched: it is another's or not
        to be written to, or has more names than one, and no journal lies beside the other.

    Raises:
        ChangedWhileReadingError: the header is not `old` any more.
        SaveError: another process is rewriting it; or the disk refused, and `state` says what is on
            it.
    """
    path = os.path.realpath(source.path)
    try:
        target = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        status = os.fstat(target)
        if status.st_nlink != 1 or os.geteuid() not in (status.st_uid, 0):
            return False
        journal = journal_path(path)
        held = _begin(source, journal, Journal(old, new), status.st_mode & 0o777)
        try:
            same = os.path.samestat(status, os.fstat(source.descriptor)) and is_at(target, path)
            if not same or source.pread(8, len(old)) != old:
                with suppress(OSError):
                    os.unlink(journal)
                raise _changed(source)
            _overwrite(source, target, journal, old, new)
        finally:
            close_read(held)
    finally:
        close_read(target)
    return True


def _begin(source: Source, path: str, journal: Journal, mode: int) -> int:
    """Writes the journal and has it on disk; its locked descriptor."""
    for _ in range(_ATTEMPTS):
        settle(source, path, len(journal.old))
        with locked(path) as left:
            if left is not None and source.pread(8, len(journal.old)) == journal.old:
                os.unlink(path)  # damaged, or another file's: this one's header is whole
        with saving(source.path, "its journal cannot be created"), suppress(FileExistsError):
            held = create_locked(path)
            break
        time.sleep(_PAUSE_SECONDS)  # one who rewrites it; or who looks whether somebody does
    else:
        raise SaveError(
            "another process is rewriting its header in place", state="unchanged", errno=errno.EBUSY
        ).locate(file=source.path)
    try:
        with saving(source.path, "its journal cannot be written"):
            os.fchmod(held, mode)  # who may read the file has to be able to read this
            write_at(held, journal.encode(), 0)
            fsync(held)
            sync_folder(os.path.dirname(path))
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        close_read(held)
        raise
    return held


def _overwrite(source: Source, target: int, journal: str, old: bytes, new: bytes) -> None:
    try:
        with saving(source.path, "cannot be written"):
            write_at(target, new, 8)
            fsync(target)
    except BaseException:
        try:
            write_at(target, old, 8)
            fsync(target)
        except OSError as error:
            raise SaveError(
                "its header was half written when the disk failed, and could not be put back; the "
                f"old one is in {journal}, where aoserial reads it from",
                errno=error.errno,
                state="half written, journal kept",
            ).locate(file=source.path) from error
        with suppress(OSError):
            os.unlink(journal)
        raise
    with saving(source.path, "was rewritten, but not its journal removed", _REWRITTEN):
        os.unlink(journal)
        sync_folder(os.path.dirname(journal))


_REWRITTEN = "rewritten, journal kept"


def _changed(source: Source) -> ChangedWhileReadingError:
    return ChangedWhileReadingError(
        "another process has written to the file since it was opened; nothing was changed"
    ).locate(file=source.path)
