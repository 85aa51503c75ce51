"""Writes a file so that its name always holds the whole old bytes or the whole new ones.

Temp file in the same folder, write, fsync, rename, fsync of the folder. Until the rename the target
is not touched; after a power failure it is one or the other. Torch-free.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Literal, Self, TypeAlias, get_args

from aoserial.errors import OptionError, SaveError
from aoserial.storage.disk import fsync, reserve, room_for, saving, sync_folder, write_at
from aoserial.storage.modes import final_mode
from aoserial.storage.source import Source
from aoserial.storage.temporary import create_temp, remove_left

# "rename": safe when the process dies. "fsync": also when the machine does. "fsync+verify": also
# reads everything back before the old file is given up.
Durability: TypeAlias = Literal["rename", "fsync", "fsync+verify"]

# For copying what the kernel cannot copy by itself
_PIECE_BYTES = 2 * 2**20

# What copy_file_range says where it cannot: two file systems, one that has not got it, an old
# kernel, a file that is in use otherwise. EIO does not say which of the two files is bad; copying
# by hand does.
_NO_COPY = {
    errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL, errno.EBADF, errno.EPERM,
    errno.ETXTBSY, errno.EIO,
}  # fmt: skip


class AtomicFile:
    """A file being written beside its target, which it replaces when the block ends without error.

        with AtomicFile(path) as file:
            file.write(data)

    Any error or interrupt leaves the target as it was and removes the temp file; that of a process
    that was killed is removed by the next one to write to the folder. An OSError becomes a
    SaveError; everything else passes through. A target that is a symlink stays one: the file it
    points to is replaced. A mapping of the old file stays good, so saving over a file that the data
    comes from is safe.

    Args:
        path: the target. An existing file's permission bits are kept; a new one gets those that
            `open` would give it.
        durability: see `Durability`.
        size: bytes that will be written, if known: a full disk then shows before the first.
        verify: called with the finished file when `durability` is "fsync+verify"; raises if what it
            reads back (`pread`) is wrong.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "fsync",
        size: int = 0,
        verify: Callable[[AtomicFile], None] | None = None,
    ) -> None:
        if durability not in get_args(Durability):
            raise OptionError(
                f"durability is {durability!r}; it must be one of {', '.join(get_args(Durability))}"
            )
        self.path = os.fspath(path)
        self.durability = durability
        self.size = size
        self.verify = verify
        self.position = 0  # where the next `write` goes
        self._descriptor: int | None = None
        self._temp: str | None = None

    def __enter__(self) -> Self:
        with self._saving("cannot be created"):
            self._target = os.path.realpath(self.path)
            self._mode = final_mode(self._target)
            self._folder = os.path.dirname(self._target)
        remove_left(self._folder)
        room = room_for(self._target)
        if room is not None and self.size > room:
            with self._saving(f"needs {self.size} bytes, and the disk has room for {room}"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        try:
            with self._saving("cannot be created"):
                self._temp, self._descriptor = create_temp(self._folder)
            with self._saving(f"there is no room for {self.size} bytes"):
                reserve(self.descriptor, self.size)
        except BaseException:
            self._discard()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self._commit()
        finally:
            self._discard()

    @property
    def descriptor(self) -> int:
        if self._descriptor is None:
            raise SaveError("the file is not open", state="unchanged", errno=errno.EBADF)
        return self._descriptor

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Writes all of `data` at `position`, and moves that on."""
        self.pwrite(data, self.position)
        self.position += memoryview(data).nbytes

    def rename_to(self, path: str | os.PathLike[str]) -> None:
        """Lets the finished file take another name in the same folder, one that is not a link."""
        with self._saving("cannot be saved"):
            target = os.path.join(self._folder, os.path.basename(os.fspath(path)))
            self._mode = final_mode(target)
            self._target, self.path = target, os.fspath(path)

    def flush(self) -> None:
        """Does nothing, since nothing is buffered; programs that write to a stream call it."""

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of `data` at `offset`."""
        with self._saving("cannot be written"):
            write_at(self.descriptor, data, offset)

    def copy(self, source: Source, start: int, count: int, offset: int) -> None:
        """Copies bytes from `start` of a source to `offset`; within the kernel where it can.

        File systems that share blocks between files (XFS, btrfs) then move no byte at all.
        """
        done = self._copy_range(source, start, count, offset)
        for piece in source.chunks(start + done, count - done, _PIECE_BYTES):
            self.pwrite(piece, offset + done)
            done += len(piece)

    def _copy_range(self, source: Source, start: int, count: int, offset: int) -> int:
        """How many of the bytes the kernel copied."""
        done = 0
        while done < count and hasattr(os, "copy_file_range"):
            with self._saving("cannot be written"):
                try:
                    step = os.copy_file_range(
                        source.descriptor,
                        self.descriptor,
                        count - done,
                        offset_src=start + done,
                        offset_dst=offset + done,
                    )
                except OSError as error:
                    if error.errno not in _NO_COPY:
                        raise
                    break
            if not step:  # the source has become shorter, or the file system does not say so
                break
            done += step
        return done

    def pread(self, count: int, offset: int) -> bytes:
        """What was written; short only at the file's end."""
        with self._saving("cannot be read back"):
            return os.pread(self.descriptor, count, offset)

    def start_writeback(self) -> None:
        """Waits until the disk has what was written so far; for a thread beside the writing one.

        The final fsync then has little left to do.
        """
        if self.durability != "rename":
            with self._saving("cannot be written"):
                os.fdatasync(self.descriptor)

    def _commit(self) -> None:
        durable = self.durability != "rename"
        with self._saving("cannot be saved"):
            os.fchmod(self.descriptor, self._mode)
            if durable:
                # Never tried again: a second fsync reports success for pages the first one lost.
                fsync(self.descriptor)
        if self.durability == "fsync+verify" and self.verify is not None:
            if hasattr(os, "posix_fadvise"):  # what is read back shall come from the disk
                os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            self.verify(self)
        assert self._temp is not None
        with self._saving("cannot be saved"):
            # Network file systems report some write errors only when a descriptor is closed. This
            # one stays open: its lock is what keeps others from removing the file.
            os.close(os.dup(self.descriptor))
            os.rename(self._temp, self._target)
            self._temp = None
        if durable:
            with self._saving("was saved, but its folder cannot be", "renamed, not known durable"):
                sync_folder(self._folder)

    def _discard(self) -> None:
        """Closes the file and removes an unfinished one; an error before is the one that counts."""
        if self._temp is not None:
            temp, self._temp = self._temp, None
            with suppress(OSError):
                os.unlink(temp)
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            with suppress(OSError):
                os.close(descriptor)

    def _saving(self, what: str, state: str = "unchanged") -> AbstractContextManager[None]:
        return saving(self.path, what, state)
