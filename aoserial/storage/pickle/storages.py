"""The storages of a file: where their bytes are, and tensors made of them. Torch-free to import.

Mapped, a tensor that lies aligned and contiguous costs no reading and no memory; all others are
read or copied into buffers of their own. Every bound was checked before, in Python ints.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from aoserial.errors import IntegrityError, locating
from aoserial.storage.dtypes import check_bool
from aoserial.storage.pickle.dtypes import COMPLEX, ITEMSIZES, torch_dtype
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.source import Source

if TYPE_CHECKING:
    import torch

    from aoserial.storage.pickle.tensors import StoragePart

_CHUNK_BYTES = 4 * 2**20

# Elements are moved about as these, by their size: not all dtypes can be copied
_CARRIERS = {1: "uint8", 2: "int16", 4: "int32", 8: "int64", 16: "complex128"}


class StorageRef:
    """A storage of a file. There is one object a storage, so sharing shows as identity.

    Attributes:
        key: its name in the file.
        start: where in the file its bytes begin.
        nbytes: how many there are.
        source: the file.
        crc32: of its bytes, as the archive says; None when it does not.
        swapped: whether its numbers are big-endian.
        location: where it was when it was saved (`"cuda:0"`); it is read to the CPU all the same.
    """

    __slots__ = ("crc32", "key", "limits", "location", "nbytes", "source", "start", "swapped")

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

    def check_crc(self) -> None:
        """Reads all its bytes and raises `IntegrityError` unless their CRC-32 is the archive's.

        An archive that has none passes: torch can be told not to compute them.
        """
        if self.crc32 is not None:
            with locating(file=self.source.path):
                chunks = self.source.chunks(self.start, self.nbytes, _CHUNK_BYTES)
                check_crc(f"storage {self.key}", chunks, self.crc32)

    def __repr__(self) -> str:
        return f"<StorageRef {self.key}, {self.nbytes} bytes>"


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
    import torch  # torch-free module until here

    storage, dtype, elements = part.storage, torch_dtype(part.dtype), math.prod(part.shape)
    if not elements:
        return torch.empty(part.shape, dtype=dtype, device="cpu")
    if part.contiguous and part.dtype != "bool" and not (part.conjugate or part.negative):
        # nearly all of them: one call, and no reading when mapped
        tensor = _elements(storage, part.dtype, dtype, part.offset, elements)
        # view() would make a second tensor that holds the first
        return tensor if len(part.shape) == 1 else tensor.resize_(*(part.shape or ((),)))
    with locating(file=storage.source.path):
        return _read_other(part, dtype, elements)


def _read_other(part: StoragePart, dtype: torch.dtype, elements: int) -> torch.Tensor:
    """A tensor that is strided, of bools, or lazily conjugated or negated."""
    import torch  # torch-free module until here

    # from the first element to the last, with what lies between them
    span = elements if part.contiguous else _span(part)
    if elements > span:
        part.storage.limits.check("expanded_bytes", part.nbytes)
    tensor = _elements(part.storage, part.dtype, dtype, part.offset, span)
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


def _span(part: StoragePart) -> int:
    return 1 + sum(
        (size - 1) * stride for size, stride in zip(part.shape, part.stride, strict=True)
    )


def _elements(
    storage: StorageRef, name: str, dtype: torch.dtype, first: int, count: int
) -> torch.Tensor:
    """`count` elements of a storage from `first` on, flat."""
    import torch  # torch-free module until here

    itemsize = ITEMSIZES[name]
    offset, nbytes = storage.start + first * itemsize, count * itemsize
    source = storage.source
    if source.mapped:
        if offset % itemsize == 0 and not storage.swapped:
            return torch.frombuffer(source.mapping, dtype=dtype, count=count, offset=offset)
        raw = torch.frombuffer(source.mapping, dtype=torch.uint8, count=nbytes, offset=offset)
        raw = raw.clone()
    else:
        buffer = bytearray(nbytes)
        source.pread_into(offset, buffer)
        raw = torch.frombuffer(buffer, dtype=torch.uint8)
    if storage.swapped:
        width = itemsize // 2 if name in COMPLEX else itemsize
        raw = raw.view(-1, width).flip(1).reshape(-1)
    return raw.view(dtype)
