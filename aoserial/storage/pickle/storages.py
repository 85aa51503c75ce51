"""The storages of a file: where their bytes are, and tensors made of them. Torch-free to import.

Mapped, a tensor that lies aligned and contiguous costs no reading and no memory; all others are
read or copied into buffers of their own. Every bound was checked before, in Python ints.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from aoserial.errors import IntegrityError, locating
from aoserial.storage.dtypes import check_bool
from aoserial.storage.pickle.dtypes import ITEMSIZES, number_bytes, torch_dtype
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.progress import SILENT, Tally
from aoserial.storage.source import Source

if TYPE_CHECKING:
    import torch

    from aoserial.storage.pickle.tensors import StoragePart

_CHUNK_BYTES = 4 * 2**20

WIDEST = 16  # bytes of the largest element
# Elements are moved about as these, by their size: not all dtypes can be copied
_CARRIERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class Storage(ABC):
    """Bytes that tensors lie in. There is one object a storage, so sharing shows as identity.

    Laws, for every implementation:
        * `chunks` gives the bytes as they lie there, `elements` and `read` those that torch takes;
        * asking twice gives equal bytes;
        * nothing is read before one of them is called.

    Attributes:
        key: tells it from the others beside it.
        nbytes: how many bytes there are.
        swapped: whether the numbers in it are big-endian.
        location: where it was when it was saved (`"cuda:0"`).
        limits: budgets for what is made of it.
    """

    __slots__ = ("key", "limits", "location", "nbytes", "swapped")

    key: str
    nbytes: int
    swapped: bool
    location: str
    limits: Limits

    @property
    def path(self) -> str | None:
        """The file that it lies in, if there is one."""
        return None

    @abstractmethod
    def chunks(self, start: int, count: int, size: int) -> Iterator[memoryview]:
        """`count` bytes from `start` on in pieces of at most `size`, without mapping them.

        All pieces may share one buffer: each is valid until the next is asked for.
        """

    @abstractmethod
    def elements(self, dtype: str, first: int, count: int) -> torch.Tensor:
        """`count` elements of that dtype, from the one numbered `first` on, flat."""

    @abstractmethod
    def read(self) -> torch.Tensor:
        """All its bytes: uint8, flat, aligned for every dtype."""


class StorageRef(Storage):
    """A storage of a file of torch.save; it is read to the CPU, wherever it was.

    Attributes:
        key: its name in the file.
        start: where in the file its bytes begin.
        source: the file.
        crc32: of its bytes, as the archive says; None when it does not.
    """

    __slots__ = ("crc32", "source", "start")

    def __init__(
        self,
        source: Source,
        key: str,
        start: int,
        nbytes: int,
        *,
        crc32: int | None = None,
        swapped: bool = False,
        limits: Limits = Limits(),  # noqa: B008 - frozen
    ) -> None:
        self.source = source
        self.key = key
        self.start = start
        self.nbytes = nbytes
        self.crc32 = crc32
        self.swapped = swapped
        self.limits = limits
        self.location = "cpu"

    @property
    def path(self) -> str:
        return self.source.path

    def chunks(self, start: int, count: int, size: int) -> Iterator[memoryview]:
        return self.source.chunks(self.start + start, count, size)

    def elements(self, dtype: str, first: int, count: int) -> torch.Tensor:
        import torch  # torch-free module until here

        wanted, itemsize = torch_dtype(dtype), ITEMSIZES[dtype]
        offset, nbytes = self.start + first * itemsize, count * itemsize
        mapped = self.source.mapped
        if mapped and offset % itemsize == 0 and not self.swapped:
            return torch.frombuffer(self.source.mapping, dtype=wanted, count=count, offset=offset)
        raw = _raw(self, offset, nbytes)
        if mapped:
            raw = raw.clone()
        if self.swapped:
            raw = raw.view(-1, number_bytes(dtype)).flip(1).reshape(-1)
        return raw.view(wanted)

    def check_crc(self, tally: Tally = SILENT) -> None:
        """Reads all its bytes and raises `IntegrityError` unless their CRC-32 is the archive's.

        An archive that has none passes: torch can be told not to compute them. `tally` counts
        what was read.
        """
        if self.crc32 is not None:
            with locating(file=self.source.path):
                chunks = self.source.chunks(self.start, self.nbytes, _CHUNK_BYTES)
                check_crc(f"storage {self.key}", _counted(chunks, tally), self.crc32)

    def read(self) -> torch.Tensor:
        raw = _raw(self, self.start, self.nbytes)
        return raw.clone() if raw.data_ptr() % WIDEST else raw

    def __repr__(self) -> str:
        return f"<StorageRef {self.key}, {self.nbytes} bytes>"


def _counted(chunks: Iterable[memoryview], tally: Tally) -> Iterator[memoryview]:
    for chunk in chunks:
        tally.add(len(chunk))
        yield chunk


def check_crc(what: str, chunks: Iterable[bytes | memoryview], expected: int) -> None:
    """Raises `IntegrityError` unless these bytes have that CRC-32."""
    found = 0
    for chunk in chunks:
        found = zlib.crc32(chunk, found)
    if found != expected:
        raise IntegrityError(
            f"{what} is damaged: its CRC-32 is {found:08x}, the archive says {expected:08x}"
        )


def read_part(part: StoragePart) -> torch.Tensor:
    """The tensor of a part: contiguous, with every element its own."""
    storage, shape, elements = part.storage, part.shape, math.prod(part.shape)
    if not elements:
        import torch  # torch-free module until here

        return torch.empty(shape, dtype=torch_dtype(part.dtype), device="cpu")
    if part.contiguous and part.dtype != "bool" and not (part.conjugate or part.negative):
        # nearly all of them: one call, and no reading when mapped
        tensor = storage.elements(part.dtype, part.offset, elements)
        # view() would make a second tensor that holds the first; resize_ takes ints fastest
        return tensor if len(shape) == 1 else tensor.resize_(*(shape or ((),)))
    with locating(file=storage.path):
        return _read_other(part, torch_dtype(part.dtype), elements)


def _read_other(part: StoragePart, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """A tensor that is strided, of bools, or lazily conjugated or negated."""
    import torch  # torch-free module until here

    # from the first element to the last, with what lies between them
    span = part.span
    if elements > span:
        part.storage.limits.check("expanded_bytes", part.nbytes)
    tensor = part.storage.elements(part.dtype, part.offset, span)
    if part.dtype == "bool":
        check_bool(tensor.view(torch.uint8))
    if part.contiguous:
        tensor.resize_(*(part.shape or ((),)))
    else:
        carrier = torch_dtype(_CARRIERS[dtype.itemsize])
        strided = tensor.view(carrier).as_strided(part.shape, part.stride)
        tensor = strided.contiguous().view(dtype)
    if part.conjugate:
        tensor = torch.conj_physical(tensor)
    return tensor.neg() if part.negative else tensor


def _raw(storage: StorageRef, offset: int, nbytes: int) -> torch.Tensor:
    """Bytes of the file: mapped as they lie there, or read."""
    import torch  # torch-free module until here

    source = storage.source
    if not nbytes:
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    if source.mapped:
        return torch.frombuffer(source.mapping, dtype=torch.uint8, count=nbytes, offset=offset)
    buffer = bytearray(nbytes)
    source.pread_into(offset, buffer)
    return torch.frombuffer(buffer, dtype=torch.uint8)
