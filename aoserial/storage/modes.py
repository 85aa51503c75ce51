"""The permission bits of a new file. Torch-free."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress

from aoserial.errors import PathError
from aoserial.storage.source import kind_of


def final_mode(target: str) -> int:
    """Permission bits of the new file: as of the one it replaces, else what `open` would give."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return 0o666 & ~umask()
    if not stat.S_ISREG(mode):
        raise PathError(f"this is {kind_of(mode)}, and cannot be replaced", errno=errno.EINVAL)
    return stat.S_IMODE(mode) & 0o777


def umask() -> int:
    """That of this process, asked without changing it where the system can say."""
    # os.umask can only ask by setting, and another thread's file would get the wrong mode meanwhile
    with suppress(OSError), open("/proc/self/status", "rb") as status:
        for line in status:
            if line.startswith(b"Umask:"):
                return int(line.split()[1], 8)
    found = os.umask(0o077)
    os.umask(found)
    return found
