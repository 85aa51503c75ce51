"""An opened regular file: read exactly, or mapped without ever being written to. Torch-free."""

from __future__ import annotations

import errno
import mmap
import os
import stat
import sys
from collections.abc import Iterator
from typing import Any, Self

from aoserial.errors import ChangedWhileReadingError, MissingFileError, PathError
from aoserial.storage.closing import Closing, close_read

# Linux's MAP_NORESERVE; Python's mmap has no such name before 3.12. A private writable mapping
# counts against the commit limit as if every page were going to be copied; few ever are.
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)

# Before 3.13 a mapping always keeps a descriptor of its own, so a set of 1,000 mapped shards would
# run into the usual limit of 1,024; afterwards it can do without.
_MAPPING: dict[str, Any] = {"trackfd": False} if sys.version_info >= (3, 13) else {}


class Source(Closing):
    """A regular file opened for reading; `size` is what it had at that moment, in bytes.

    With `mapped`, tensors lie in one private mapping of the file: reading costs no memory of its
    own, writing to a tensor never reaches the file, and a tensor outlives `close()`. Should
    somebody truncate the file meanwhile, touching the lost pages kills the process (SIGBUS): files
    that others may write to are opened with `mapped=False`, which reads into private buffers and
    raises instead.
    """

    def __init__(self, path: str, descriptor: int, size: int, *, mapped: bool) -> None:
        self.path = path
        self.size = size
        self.mapped = mapped
        self._descriptor: int | None = descriptor
        self._mapping: mmap.mmap | None = None

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, mapped: bool = True) -> Self:
        """Opens a regular file. Symlinks are followed: Hugging Face's cache is made of them.

        Raises:
            MissingFileError: there is no such file.
            PathError: it is not a regular file, or may not be read.
        """
        path = os.fspath(path)
        try:
            # O_NONBLOCK: opening a FIFO without a writer would otherwise wait for ever
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise MissingFileError("there is no such file", errno=error.errno).locate(
                file=path
            ) from None
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise PathError(
                f"cannot be opened: {_reason(error)}", errno=getattr(error, "errno", errno.EINVAL)
            ).locate(file=path) from None
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise PathError(
                    f"this is {kind_of(status.st_mode)}, not a regular file", errno=errno.EINVAL
                ).locate(file=path)
            return cls(path, descriptor, status.st_size, mapped=mapped)
        except BaseException:
            close_read(descriptor)
            raise

    @property
    def descriptor(self) -> int:
        """The file descriptor; everything is read through it, so a rename cannot mix two files."""
        if self._descriptor is None:
            raise PathError("the file has been closed", errno=errno.EBADF).locate(file=self.path)
        return self._descriptor

    @property
    def mapping(self) -> mmap.mmap:
        """The whole file, mapped private and writable; made when first asked for."""
        if self._mapping is None:
            try:
                self._mapping = mmap.mmap(
                    self.descriptor,
                    self.size,
                    flags=mmap.MAP_PRIVATE | _NORESERVE,
                    prot=mmap.PROT_READ | mmap.PROT_WRITE,
                    **_MAPPING,
                )
            except ValueError:  # mmap's own check: the file is shorter than that by now
                raise self._changed() from None
            except OSError as error:
                raise PathError(f"cannot be mapped: {_reason(error)}", errno=error.errno).locate(
                    file=self.path
                ) from None
        return self._mapping

    def pread(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`, which must lie inside the file."""
        # read as much as there is in one call: no second buffer to join into
        data = self._pread_some(offset, count)
        if len(data) == count:
            return data
        buffer = bytearray(count)
        self.pread_into(offset, buffer)
        return bytes(buffer)

    def pread_into(self, offset: int, buffer: bytearray | memoryview) -> None:
        """Fills `buffer` with the bytes from `offset`.

        Raises:
            ChangedWhileReadingError: the file has become shorter.
        """
        view = memoryview(buffer).cast("B")
        done = 0
        while done < len(view):
            try:
                count = os.preadv(self.descriptor, [view[done:]], offset + done)
            except OSError as error:
                raise self._unreadable(offset + done, error) from None
            if count == 0:
                raise self._changed()
            done += count

    def chunks(self, offset: int, count: int, size: int) -> Iterator[memoryview]:
        """The `count` bytes from `offset` in pieces of at most `size`, read and not mapped.

        All pieces share one buffer: each is valid until the next is asked for.
        """
        buffer = memoryview(bytearray(min(size, count)))
        for start in range(offset, offset + count, size):
            piece = buffer[: min(size, offset + count - start)]
            self.pread_into(start, piece)
            yield piece

    def close(self) -> None:
        """Closes the descriptor. Tensors already handed out keep the mapping they lie in alive."""
        # Never mapping.close(): torch.frombuffer holds the mmap object but not a buffer export, so
        # closing would succeed and leave every tensor dangling.
        self._mapping = None
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            close_read(descriptor)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Source {self.path!r}, {self.size} bytes>"

    def _pread_some(self, offset: int, count: int) -> bytes:
        try:
            return os.pread(self.descriptor, count, offset)
        except OSError as error:
            raise self._unreadable(offset, error) from None

    def _unreadable(self, offset: int, error: OSError) -> PathError:
        return PathError(
            f"cannot be read at byte {offset}: {_reason(error)}", errno=error.errno
        ).locate(file=self.path)

    def _changed(self) -> ChangedWhileReadingError:
        now = os.fstat(self.descriptor).st_size
        return ChangedWhileReadingError(
            f"the file changed while it was being read ({self.size} bytes then, {now} now); what "
            "was read is not to be trusted"
        ).locate(file=self.path)


def kind_of(mode: int) -> str:
    """`"a folder"` and the like, for a file that is not a regular one."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a character device",
        stat.S_IFBLK: "a block device",
    }
    return kinds.get(stat.S_IFMT(mode), "something unknown")


def _reason(error: OSError | ValueError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error)
