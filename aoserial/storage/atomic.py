"""Writes a file so that its name always holds the whole old bytes or the whole new ones.

Temp file in the same folder, write, fsync, rename, fsync of the folder. Until the rename the target
is not touched; after a power failure it is one or the other. Torch-free.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from contextlib import contextmanager, suppress
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias, get_args

from aoserial.errors import AoserialError, OptionError, PathError, SaveError
from aoserial.storage.source import kind_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# "rename": safe when the process dies. "fsync": also when the machine does. "fsync+verify": also
# reads everything back before the old file is given up.
Durability: TypeAlias = Literal["rename", "fsync", "fsync+verify"]

_TEMP_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = (
    100  # names are 48 random bits: a second one is for a planted name, a hundredth for none
)


class AtomicFile:
    """A file being written beside its target, which it replaces when the block ends without error.

        with AtomicFile(path) as file:
            file.write(data)

    Any error or interrupt leaves the target as it was and removes the temp file. An OSError becomes
    a SaveError; everything else passes through. A target that is a symlink stays one: the file it
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
            self._mode = _final_mode(self._target)
            self._folder = os.path.dirname(self._target)
        try:
            with self._saving("cannot be created"):
                self._open_temp()
            with self._saving(f"there is no room for {self.size} bytes"):
                _reserve(self.descriptor, self.size)
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
            self._mode = _final_mode(target)
            self._target, self.path = target, os.fspath(path)

    def flush(self) -> None:
        """Does nothing, since nothing is buffered; programs that write to a stream call it."""

    def pwrite(self, data: bytes | bytearray | memoryview, offset: int) -> None:
        """Writes all of `data` at `offset`."""
        view = memoryview(data).cast("B")
        done = 0
        with self._saving("cannot be written"):
            while done < len(view):
                done += os.pwrite(self.descriptor, view[done:], offset + done)

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

    def _open_temp(self) -> None:
        for _ in range(_ATTEMPTS):
            temp = os.path.join(self._folder, f".aoserial-{_random_name()}.tmp")
            with suppress(FileExistsError):
                # never wider than the final mode at any moment
                self._descriptor = os.open(temp, _TEMP_FLAGS, 0o600)
                self._temp = temp
                return
        raise FileExistsError(errno.EEXIST, "no free name for a temp file")

    def _commit(self) -> None:
        durable = self.durability != "rename"
        with self._saving("cannot be saved"):
            os.fchmod(self.descriptor, self._mode)
            if durable:
                # Never tried again: a second fsync reports success for pages the first one lost.
                _fsync(self.descriptor)
        if self.durability == "fsync+verify" and self.verify is not None:
            if hasattr(os, "posix_fadvise"):  # what is read back shall come from the disk
                os.posix_fadvise(self.descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            self.verify(self)
        assert self._temp is not None
        with self._saving("cannot be saved"):
            self._close()  # network file systems report some write errors only here
            os.rename(self._temp, self._target)
            self._temp = None
        if durable:
            with self._saving("was saved, but its folder cannot be", "renamed, not known durable"):
                sync_folder(self._folder)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)

    def _discard(self) -> None:
        """Removes what is left of an attempt; what went wrong before is the error that counts."""
        with suppress(OSError):
            self._close()
        if self._temp is not None:
            temp, self._temp = self._temp, None
            with suppress(OSError):
                os.unlink(temp)

    @contextmanager
    def _saving(self, what: str, state: str = "unchanged") -> Iterator[None]:
        try:
            yield
        except AoserialError as error:
            error.locate(file=self.path)
            raise
        except OSError as error:
            raise SaveError(
                f"{what}: {error.strerror or error}", errno=error.errno, state=state
            ).locate(file=self.path) from error


def _random_name() -> str:
    return os.urandom(6).hex()  # what the module `secrets` would give, without its 9 ms of imports


def _final_mode(target: str) -> int:
    """Permission bits of the new file: as of the one it replaces, else what `open` would give."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return 0o666 & ~_umask()
    if not stat.S_ISREG(mode):
        raise PathError(f"this is {kind_of(mode)}, and cannot be replaced", errno=errno.EINVAL)
    return stat.S_IMODE(mode) & 0o777


def _umask() -> int:
    # os.umask can only ask by setting, and another thread's file would get the wrong mode meanwhile
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    umask = os.umask(0o077)
    os.umask(umask)
    return umask


def _reserve(descriptor: int, size: int) -> None:
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


def _fsync(descriptor: int) -> None:
    if hasattr(fcntl, "F_FULLFSYNC"):  # on macOS fsync stops at the drive's own cache
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)
    else:
        os.fsync(descriptor)


def sync_folder(folder: str) -> None:
    """Waits until the disk has the names in a folder."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
