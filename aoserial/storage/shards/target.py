"""Where a set goes: the folder, the names, the room there is. Torch-free."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from aoserial.errors import PathError, SaveError
from aoserial.storage.disk import room_for
from aoserial.storage.shards.names import INDEX_SUFFIX, SUFFIX


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """Where a set goes.

    Attributes:
        folder: made if it is not there.
        stem: what the names of its files begin with.
        limit: the largest size of a shard in bytes, but for tensors that are larger; None for one
            file, whatever its size.
    """

    folder: str
    stem: str
    limit: int | None

    @property
    def single(self) -> str:
        """The name of the file when there is one alone."""
        return f"{self.stem}{SUFFIX}"

    @property
    def index(self) -> str:
        return f"{self.stem}{SUFFIX}{INDEX_SUFFIX}"


def make_folder(target: Target) -> None:
    """Makes it unless it is there.

    Raises:
        PathError: it is a file.
        SaveError: it cannot be made.
    """
    try:
        os.makedirs(target.folder or ".", exist_ok=True)
    except FileExistsError as error:
        raise PathError("is a file, and a folder is needed here", errno=error.errno) from None
    except OSError as error:
        raise SaveError(
            f"the folder cannot be made: {error.strerror}", errno=error.errno, state="unchanged"
        ) from error


def check_room(target: Target, needed: int) -> None:
    """Raises a SaveError unless the disk has room for so many bytes, as far as it says."""
    room = room_for(os.path.join(target.folder, target.index))
    if room is not None and needed > room:
        raise SaveError(
            f"the set needs {needed} bytes, and the disk has room for {room}",
            errno=errno.ENOSPC,
            state="unchanged",
        )
