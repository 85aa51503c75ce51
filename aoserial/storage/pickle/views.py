"""Tensors as they were saved: with their strides, over storages that they share.

Torch-free to import.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from aoserial.errors import locating
from aoserial.storage.pickle.dtypes import torch_dtype
from aoserial.storage.pickle.storages import Storage
from aoserial.storage.pickle.tensors import StoragePart

if TYPE_CHECKING:
    import torch


def as_saved(parts: Sequence[StoragePart], among: Iterable[StoragePart]) -> list[torch.Tensor]:
    """The tensors of parts. Those that share a storage in the file share one in memory.

    A tensor that is contiguous and alone in its storage, as nearly all are, is what `part.read()`
    gives; others keep the strides they had. Numbers of the other byte order, and lazily conjugated
    or negated ones, are copies.

    Args:
        among: all parts of the file that count as sharing.

    Raises:
        FormatError: a bool that is neither 0 nor 1.
    """
    users = Counter(part.storage for part in among)
    shared = SharedStorages()
    return [
        part.read() if part.contiguous and users[part.storage] <= 1 else shared.view(part)
        for part in parts
    ]


class SharedStorages:
    """Storages of a file, each brought into memory once for all tensors that lie in it."""

    def __init__(self) -> None:
        self._held: dict[Storage, torch.Tensor] = {}

    def bytes_of(self, storage: Storage) -> torch.Tensor:
        """All bytes of a storage: uint8, flat; the same tensor whenever it is asked for."""
        if storage not in self._held:
            with locating(file=storage.path):
                self._held[storage] = storage.read()
        return self._held[storage]

    def view(self, part: StoragePart) -> torch.Tensor:
        """The tensor of a part with its own strides, over its storage; a copy where it cannot be.

        Raises:
            FormatError: a bool that is neither 0 nor 1.
        """
        import torch  # torch-free module until here

        if part.storage.swapped or part.conjugate or part.negative or not part.nbytes:
            return part.read()
        if part.dtype == "bool":
            part.read()  # for what it refuses
        storage = self.bytes_of(part.storage).untyped_storage()
        empty = torch.empty(0, dtype=torch_dtype(part.dtype))
        return empty.set_(storage, part.offset, part.shape, part.stride)
