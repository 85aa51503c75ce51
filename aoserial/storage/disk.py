"""Asking the disk for room, and to keep what it was given; what it says to that. Torch-free."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from aoserial.errors import AoserialError, SaveError
from aoserial.storage.closing import close_read


@contextmanager
def saving(path: str, what: str, state: str = "unchanged") -> Iterator[None]:
    """Turns what the disk says to the writing of `path` into a SaveError.

    Args:
        what: completes "the file …".
        state: what is on disk then; see `SaveError`.
    """
    try:
        yield
    except AoserialError as error:
        error.locate(file=path)
        raise
    except OSError as error:
        raise SaveError(
            f"{what}: {error.strerror or error}", errno=error.errno, state=state
        ).locate(file=path) from error


def room_for(path: str | os.PathLike[str]) -> int | None:
    """How many bytes a new file of that path may have; None where the file system does not say."""
    try:
        told = os.statvfs(os.path.dirname(os.path.realpath(path)))
    except OSError:
        return None
    return told.f_bavail * told.f_frsize if told.f_blocks else None


def write_at(descriptor: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Writes all of `data` at `offset`."""
    view = memoryview(data).cast("B")
    done = 0
    while done < len(view):
        done += os.pwrite(descriptor, view[done:], offset + done)


def reserve(descriptor: int, size: int) -> None:
    """Reserves disk space where the file system can, so that a full disk shows at once."""
    if not size or not hasattr(os, "posix_fallocate"):
        return
    # Where the file system cannot, glibc writes a byte to every block instead, which takes minutes
    # over a network. It does not dare to on a descriptor with O_APPEND: then it says EBADF.
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
    try:
        os.posix_fallocate(descriptor, 0, size)
    except OSError as error:
        if error.errno not in {errno.EBADF, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS}:
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)


def fsync(descriptor: int) -> None:
    """Waits until the disk has what was written."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS fsync stops at the drive's own cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_folder(folder: str) -> None:
    """Waits until the disk has the folder's names."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        close_read(descriptor)
