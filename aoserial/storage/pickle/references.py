"""Persistent ids: how a pickle refers to the storages that lie beside it. Torch-free.

torch gives a storage the id `("storage", class, key, location, elements)`; the legacy format adds a
sixth item, None or a view `(key, offset, elements)`. Only exactly that is a storage. The class
tells the dtype; it is looked up in a table of names, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable

from aoserial.errors import BoundsError, PickleError, escape
from aoserial.storage.pickle.dtypes import ITEMSIZES, typed_storage
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.tensors import TypedStorage
from aoserial.storage.pickle.values import Name, Value


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
        if type(id) is not tuple or not 4 <= len(id) <= 6 or type(id[1]) is not Name:
            return None
        kind, cls = id[0], id[1]
        if type(kind) is not str or kind != "storage":
            return cls if type(kind) is str and kind == "module" and len(id) == 4 else None
        dtype = typed_storage(cls.module, cls.name)
        if dtype is None or len(id) < 5:
            return None
        key, location, count = id[2:5]
        told = type(key) is str and type(location) is str and type(count) is int and count >= 0
        if not told:
            raise PickleError("a storage is not given by its key, its place and its elements")
        typed = self._typed.get((key, dtype, count))
        if typed is None:
            storage = self._find(key, dtype, count)
            storage.location = location[:64]
            self._typed[key, dtype, count] = typed = TypedStorage(storage, dtype, 0, count)
        return typed if len(id) == 5 or id[5] is None else _viewed(typed, id[5])


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
            raise PickleError(f"the file has no storage '{escape(key[:40])}'")
        nbytes = count * ITEMSIZES[dtype]
        if nbytes != storage.nbytes:
            raise BoundsError(
                f"storage {key} is said to be {count} elements of {dtype}, {nbytes} bytes, but "
                f"the file has {storage.nbytes} bytes for it"
            )
        return storage

    return find
