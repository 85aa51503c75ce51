"""The storages that a pickle refers to: which bytes of each are written, and as what. Torch-free.

What is known of a storage grows while the pickle is made: each tensor in it adds to the window of
bytes that are used. So places are left open in the pickle, for offsets and sizes, and filled in at
the end.
"""

from __future__ import annotations

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.pickle.dtypes import ITEMSIZES, STORAGE_DTYPES, number_bytes
from aoserial.storage.pickle.storages import Storage
from aoserial.storage.pickle.tensors import StoragePart, TypedStorage
from aoserial.storage.pickle.values import Value
from aoserial.storage.pickle.writing.opcodes import integer

# The class of a storage by its dtype. The others have none of their own.
CLASSES = {dtype: cls for cls, dtype in STORAGE_DTYPES.items()}
UNTYPED = "UntypedStorage"


class Record:
    """A storage on its way into an archive.

    Attributes:
        storage: the bytes.
        key: its name in the archive.
        cls: the class of torch's that it is referred to by.
        start: of the window that is written, in bytes; filled in by `settle`.
        nbytes: of the window.
        width: bytes of a number in it, to be reversed where the storage has the other byte order.
        value: the first value that lies in it, for error messages.
        size_at: where in the opcodes its size belongs.
    """

    __slots__ = (
        "_end",
        "_places",
        "_tensors",
        "_whole",
        "cls",
        "key",
        "nbytes",
        "size_at",
        "start",
        "storage",
        "value",
        "width",
    )

    def __init__(self, storage: Storage, key: str, cls: str, value: Value) -> None:
        self.storage = storage
        self.key = key
        self.cls = cls
        self.value = value
        self.start = storage.nbytes
        self.nbytes = 0
        self.width = 1
        self.size_at = 0
        self._end = 0
        self._tensors: set[str] = set()  # dtypes of the tensors in it
        self._whole: set[str] = set()  # dtypes that it has by itself
        self._places: list[tuple[int, StoragePart]] = []

    def add(self, part: StoragePart, at: int) -> None:
        """A tensor in it, and where in the opcodes its offset belongs."""
        self._tensors.add(part.dtype)
        self._places.append((at, part))
        count = part.span
        if count:
            itemsize = ITEMSIZES[part.dtype]
            begin = part.offset * itemsize
            self.start = min(self.start, begin)
            self._end = max(self._end, begin + count * itemsize)

    def add_whole(self, typed: TypedStorage) -> None:
        """It is referred to by itself: all of it is used."""
        self._whole.add(typed.dtype)
        itemsize = ITEMSIZES[typed.dtype]
        begin, end = typed.offset * itemsize, (typed.offset + typed.count) * itemsize
        if (begin, end) != (0, self.storage.nbytes):
            raise UnsupportedTensorError(
                "a part of a storage is there by itself, which torch.save can no longer say"
            )
        self.start, self._end = begin, end

    def settled_class(self) -> str:
        """The class that fits all that lies in it."""
        if len(self._whole) > 1:
            kinds = " and of ".join(sorted(self._whole))
            raise UnsupportedTensorError(f"a storage is there by itself as one of {kinds}")
        dtypes = self._whole or self._tensors
        return CLASSES.get(min(dtypes), UNTYPED) if len(dtypes) == 1 else UNTYPED

    def settle(self, opcodes: list[bytes]) -> None:
        """Decides on the window, and fills in its size and the offsets in it."""
        dtypes = self._tensors | self._whole
        if self.storage.swapped:
            widths = {number_bytes(dtype) for dtype in dtypes}
            if len(widths) > 1:
                raise UnsupportedTensorError(
                    "a big-endian storage has numbers of different sizes in it, and no byte order "
                    f"fits all of {', '.join(sorted(dtypes))}"
                )
            (self.width,) = widths
        alignment = max(ITEMSIZES[dtype] for dtype in dtypes)
        if self._end > self.storage.nbytes:
            raise UnsupportedTensorError(
                f"it reaches to byte {self._end} of a storage of {self.storage.nbytes} bytes"
            )
        self.start -= self.start % alignment
        self.nbytes = max(0, self._end - self.start)
        count = self.nbytes // ITEMSIZES[STORAGE_DTYPES.get(self.cls, "uint8")]
        opcodes[self.size_at] = integer(count)
        for at, part in self._places:
            offset = part.offset - self.start // ITEMSIZES[part.dtype]
            # an empty tensor may begin anywhere, as long as it is inside
            inside = 0 <= offset * ITEMSIZES[part.dtype] <= self.nbytes
            opcodes[at] = integer(offset if inside else 0)
