"""Storages outside of files: of tensors in memory, and of parts of other formats.

Torch-free to import.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from aoserial.errors import MigrationError, UnsupportedTensorError
from aoserial.storage.computed import PIECE_BYTES
from aoserial.storage.part import Part, ViewPart, describe
from aoserial.storage.pickle.dtypes import ITEMSIZES, torch_dtype
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.storages import WIDEST, Storage
from aoserial.storage.pickle.tensors import StoragePart, contiguous
from aoserial.storage.safetensors.reader import FilePart

if TYPE_CHECKING:
    import torch


class MemoryStorage(Storage):
    """A storage of torch's, on any device. Tensors that share it must share this object, too.

    Attributes:
        storage: the bytes.
    """

    __slots__ = ("storage",)

    def __init__(self, storage: torch.UntypedStorage, limits: Limits = Limits()) -> None:  # noqa: B008
        """
        Raises:
            UnsupportedTensorError: it has no bytes.
        """
        import torch  # torch-free module until here

        if storage.device.type == "meta":
            raise UnsupportedTensorError("a meta tensor has no bytes that could be saved")
        self.storage = storage
        self.nbytes = storage.nbytes()
        self.swapped = False
        self.limits = limits
        self.location = torch.serialization.location_tag(storage)
        self.key = f"memory {id(self):x}"

    def chunks(self, start: int, count: int, size: int) -> Iterator[memoryview]:
        return _chunks(self.elements("uint8", start, count), count, size)

    def elements(self, dtype: str, first: int, count: int) -> torch.Tensor:
        import torch  # torch-free module until here

        empty = torch.empty(0, dtype=torch_dtype(dtype), device=self.storage.device)
        return empty.set_(self.storage, first, (count,), (1,))

    def read(self) -> torch.Tensor:
        return self.elements("uint8", 0, self.nbytes)


class PartStorage(Storage):
    """The bytes of a part of any kind, which are read when they are asked for.

    Attributes:
        part: whose bytes they are.
    """

    __slots__ = ("part",)

    def __init__(self, part: Part) -> None:
        self.part = part
        self.nbytes = part.nbytes
        self.swapped = False
        self.limits = Limits()
        self.location = "cpu"
        self.key = f"part {id(part):x}"

    def chunks(self, start: int, count: int, size: int) -> Iterator[memoryview]:
        base = self.part.base if isinstance(self.part, ViewPart) else self.part
        if isinstance(base, FilePart):
            # not through a mapping, whose pages would stay in memory
            return base.source.chunks(base.offset + start, count, size)
        if (start, count) == (0, self.nbytes):
            return self._pieces(size)
        return _chunks(self.read()[start : start + count], count, size)

    def _pieces(self, size: int) -> Iterator[memoryview]:
        """All bytes, of what is computed as they are made."""
        done = 0
        for piece in self.part.pieces(PIECE_BYTES):
            done += piece.numel()
            if done <= self.nbytes:
                yield from _chunks(piece, piece.numel(), size)
        if done != self.nbytes:
            raise self._misjudged(done)

    def elements(self, dtype: str, first: int, count: int) -> torch.Tensor:
        itemsize = ITEMSIZES[dtype]
        flat = self.read()[first * itemsize : (first + count) * itemsize]
        return flat.view(torch_dtype(dtype))

    def read(self) -> torch.Tensor:
        flat = self.part.read_bytes()
        if flat.numel() != self.nbytes:
            raise self._misjudged(flat.numel())
        return flat.clone() if flat.storage_offset() % WIDEST else flat

    def _misjudged(self, found: int) -> MigrationError:
        return MigrationError(
            f"{describe(self.part)} gave {found} bytes when read, but {self.nbytes} were planned"
        )


def _chunks(flat: torch.Tensor, count: int, size: int) -> Iterator[memoryview]:
    """`count` flat bytes on any device, through one buffer."""
    import torch  # torch-free module until here

    if not count:
        return
    buffer = bytearray(min(size, count))
    view, block = memoryview(buffer), torch.frombuffer(buffer, dtype=torch.uint8)
    if count <= size:  # of most
        block.copy_(flat)
        yield view
        return
    for start in range(0, count, size):
        step = min(size, count - start)
        block[:step].copy_(flat[start : start + step])
        yield view[:step]


def stored(part: Part) -> StoragePart:
    """A part of any kind as a contiguous tensor in a storage of its own.

    Raises:
        UnsupportedTensorError: torch has no such dtype.
    """
    if part.dtype not in ITEMSIZES:
        raise UnsupportedTensorError(f"torch has no dtype {part.dtype}")
    shape, stride = part.shape, contiguous(part.shape)
    return StoragePart(part.dtype, shape, stride, 0, PartStorage(part), contiguous=True)
