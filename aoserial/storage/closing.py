"""What holds a file open, and closes it at the end of a `with`. Torch-free."""

from __future__ import annotations

from abc import ABC, abstractmethod
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
