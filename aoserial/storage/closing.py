"""What holds a file open, and closes it at the end of a `with`. Torch-free."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from contextlib import suppress
from types import TracebackType
from typing import Self


class Closing(ABC):
    """A context that closes what it is."""

    @abstractmethod
    def close(self) -> None:
        """Closes the file. Tensors already handed out stay good."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


def close_read(descriptor: int) -> None:
    """Closes a descriptor that was read from, or whose data has been synced.

    An error means nothing then: there is no data left that it could be about.
    """
    with suppress(OSError):
        os.close(descriptor)
