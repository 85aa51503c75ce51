"""Persistent ids: how a pickle refers to the storages that lie beside it. Torch-free.

torch gives a storage the id `("storage", class, key, location, elements)`; the legacy format adds a
sixth item, None or a view `(key, offset, elements)`. Only exactly that is a storage. The class
tells the dtype; it is looked up in a table of names, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from aoserial.errors import BoundsError, PickleError
from aoserial.storage.pickle.dtypes import ITEMSIZES, typed_storage
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.tensors import TypedStorage
from aoserial.storage.pickle.values import Name, Value

_KEY = re.compile(r"0|[1-9][0-9]{0,19}", re.ASCII)


class Storages:
    """The storages of a container; called with a persistent id, gives what it refers to.

    Args:
        find: gives the storage of a key, a dtype and a count of elements, or raises.
    """

    def __init__(self, find: Callable[[str, str, int], StorageRef]) -> None:
        self._find = find
        self._typed: dict[tuple[str, str, int], TypedStorage] = {}

    def __call__(self, id: Value) -> Value | None:  # noqa: A002 - pickle's own word
        """A `TypedStorage`, or the class of a module; None for ids of other things.

        Raises:
            PickleError: it is a storage's, but malformed, or the container has no such storage.
            BoundsError: the storage is not as long as the id says.
        """
        if type(id) is not tuple or not 4 <= len(id) <= 6 or type(id[0]) is not str:
            return None
        if id[0] == "module" and len(id) == 4:
            return id[1] if type(id[1]) is Name else None
        cls = id[1]
        dtype = typed_storage(cls.module, cls.name) if type(cls) is Name else None
        if id[0] != "storage" or dtype is None or len(id) < 5:
            return None
        _, _, key, location, count, *view = id
        if type(key) is not str or not _KEY.fullmatch(key):
            raise PickleError(f"a storage has the key {key!r:.60}, which is no plain number")
        if type(count) is not int or count < 0:
            raise PickleError(f"storage {key} has {count!r:.40} elements")
        if type(location) is not str:
            raise PickleError(f"storage {key} is at no place that a text names")
        typed = self._typed.get((key, dtype, count))
        if typed is None:
            storage = self._find(key, dtype, count)
            storage.location = location[:64]
            self._typed[key, dtype, count] = typed = TypedStorage(storage, dtype, 0, count)
        return typed if not view or view[0] is None else _viewed(typed, view[0])


def _viewed(whole: TypedStorage, view: Value) -> TypedStorage:
    """A view, as the legacy format has it: `(key, offset, elements)`."""
    match view:
        case (_, int() as offset, int() as count):
            if not 0 <= offset <= offset + count <= whole.count:
                raise BoundsError(
                    f"a view of elements {offset} to {offset + count} lies outside its storage, "
                    f"which has {whole.count}"
                )
            return TypedStorage(whole.storage, whole.dtype, offset, count)
    raise PickleError("a view of a storage is not given by a key, an offset and a size")


def find_in(storages: dict[str, StorageRef]) -> Callable[[str, str, int], StorageRef]:
    """Finds storages whose bytes are known."""

    def find(key: str, dtype: str, count: int) -> StorageRef:
        storage = storages.get(key)
        if storage is None:
            raise PickleError(f"the file has no storage {key}")
        nbytes = count * ITEMSIZES[dtype]
        if nbytes != storage.nbytes:
            raise BoundsError(
                f"storage {key} is said to be {count} elements of {dtype}, {nbytes} bytes, but "
                f"the file has {storage.nbytes} bytes for it"
            )
        return storage

    return find
