"""Temp files: locked while their writer lives, so that those of dead ones can be told and removed.

A lock (`flock`) goes with the process that holds it, whatever ends it; a process number may be
another's by the time somebody looks. The name says which process made a file, for people, and in
which run of which machine, for a folder that several machines share. Torch-free.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from aoserial.storage.closing import close_read

_FLAGS = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_ATTEMPTS = (
    100  # names are 48 random bits: a second one is for a planted name, a hundredth for none
)

_NAME = re.compile(r"\.aoserial-(?P<boot>[0-9a-f]{8})-[0-9]+-[0-9a-f]{12}\.tmp")

# A file of another run of the machine may be one of another machine that is running now, and not
# every network file system shows locks to others: then it counts as left when nobody has written to
# it for so long.
_LEFT_SECONDS = 3600


def create_temp(folder: str) -> tuple[str, int]:
    """Creates a temp file in a folder, for its owner alone; its path and its locked descriptor.

    Raises:
        OSError: it cannot be created.
    """
    for _ in range(_ATTEMPTS):
        path = os.path.join(folder, f".aoserial-{_boot()}-{os.getpid()}-{_random_name()}.tmp")
        with suppress(FileExistsError):
            return path, create_locked(path)
    raise FileExistsError(errno.EEXIST, "no free name for a temp file")


def create_locked(path: str) -> int:
    """Creates a file to read and write, locked until its descriptor is closed.

    Raises:
        FileExistsError: there is something of that name, or somebody took the new file for one that
            was left, in the moment before it was locked.
        OSError: it cannot be created.
    """
    descriptor = os.open(path, _FLAGS, 0o600)  # never wider than the final mode at any moment
    try:
        # without locks on that file system nobody can hold one either, and all are left alone
        if _lock(descriptor) is not False and is_at(descriptor, path):
            return descriptor
    except BaseException:
        with suppress(OSError):
            os.unlink(path)
        close_read(descriptor)
        raise
    close_read(descriptor)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


@contextmanager
def locked(path: str) -> Iterator[int | None]:
    """Opens and locks a file that nobody holds; the descriptor, or None when it cannot be had."""
    descriptor = None
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor is None:
        yield None
        return
    try:
        regular = stat.S_ISREG(os.fstat(descriptor).st_mode)
        held = regular and _lock(descriptor) is True and is_at(descriptor, path)
        yield descriptor if held else None
    finally:
        close_read(descriptor)


def remove_left(folder: str) -> None:
    """Removes the temp files of dead processes from a folder, as far as they may be removed."""
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _NAME.fullmatch(entry.name)
            if match is None:
                continue
            with locked(entry.path) as descriptor, suppress(OSError):
                if descriptor is not None and _is_left(descriptor, match["boot"]):
                    os.unlink(entry.path)


def is_at(descriptor: int, path: str) -> bool:
    """Whether an open file is still the one of that path."""
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path, follow_symlinks=False))
    except FileNotFoundError:
        return False


def _is_left(descriptor: int, boot: str) -> bool:
    return boot == _boot() or time.time() - os.fstat(descriptor).st_mtime > _LEFT_SECONDS


def _lock(descriptor: int) -> bool | None:
    """True when the lock is ours, False when another holds it, None when there are no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


@functools.cache
def _boot() -> str:
    """Eight hex digits for this run of this machine; zeros where the system does not name it."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read(8)
    return "0" * 8


def _random_name() -> str:
    return os.urandom(6).hex()  # what the module `secrets` would give, without its 9 ms of imports
