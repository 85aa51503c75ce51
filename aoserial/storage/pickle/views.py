"""Tensors as they were saved: with their strides, over storages that they share. Needs torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch

from aoserial.errors import locating
from aoserial.storage.pickle.dtypes import torch_dtype
from aoserial.storage.pickle.storages import Storage
from aoserial.storage.pickle.tensors import StoragePart


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
    storages: dict[Storage, torch.Tensor] = {}
    return [_as_saved(part, users, storages) for part in parts]


def _as_saved(
    part: StoragePart, users: Counter[Storage], storages: dict[Storage, torch.Tensor]
) -> torch.Tensor:
    storage = part.storage
    alone = part.contiguous and users[storage] <= 1
    if alone or storage.swapped or part.conjugate or part.negative or not part.nbytes:
        return part.read()
    if part.dtype == "bool":
        part.read()  # for what it refuses
    if storage not in storages:
        with locating(file=storage.path):
            storages[storage] = storage.read()
    view = torch.empty(0, dtype=torch_dtype(part.dtype))
    return view.set_(storages[storage].untyped_storage(), part.offset, part.shape, part.stride)
