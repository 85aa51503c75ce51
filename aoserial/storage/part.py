"""Parts: plain tensors known before their bytes are. Torch-free.

A part knows dtype, shape and byte length; `read()` gives the tensor. Two kinds are derived from
others without reading: a `ViewPart` is the same bytes under another dtype or shape, a
`ComputedPart` (`storage.computed`) is made by a function when it is read. Since a derived part
declares what it will be, a migration can be planned, costed and laid out in a new file before a
byte moves.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, final

from aoserial.errors import MigrationError
from aoserial.storage.dtypes import BY_NAME, dtype_name, torch_dtype

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


class Part(ABC):
    """A plain tensor: `dtype` (torch's name), `shape` (that of the tensor), bytes on demand.

    Laws, for every implementation:
        * `read()` returns a contiguous tensor of exactly `dtype` and `shape`;
        * `read_bytes()` returns the bytes of that tensor;
        * reading twice gives equal bytes;
        * nothing is read before `read()`.
    """

    __slots__ = ("dtype", "shape")
    dtype: str
    shape: Shape

    def __init__(self, dtype: str, shape: Shape) -> None:
        self.dtype = dtype
        self.shape = shape

    @property
    def nbytes(self) -> int:
        return nbytes(self.dtype, self.shape)

    @abstractmethod
    def read(self) -> torch.Tensor:
        """The tensor, contiguous, of `dtype` and `shape`."""

    def read_bytes(self) -> torch.Tensor:
        """The tensor's bytes: uint8, flat. Works for dtypes that torch does not have, too."""
        import torch  # torch-free module

        return self.read().reshape(-1).view(torch.uint8)

    def pieces(self, size: int) -> Iterator[torch.Tensor]:  # noqa: ARG002 - for those below
        """Its bytes in order: uint8, flat, each piece made when it is asked for where that can be.

        Args:
            size: bytes of a piece, about; a part that can only be read whole is one piece.
        """
        yield self.read_bytes()

    @abstractmethod
    def bind(self, leaves: Mapping[Part, Part]) -> Part:
        """The same derivation over other leaves; a leaf that is not in the map stays."""

    @abstractmethod
    def leaves(self) -> Iterator[Part]:
        """The underived parts this one is made from, each as often as it is used."""

    def view(self, dtype: str, shape: Shape) -> Part:
        """The same bytes as another dtype or shape; the byte length must not change."""
        if nbytes(dtype, shape) != self.nbytes:
            raise MigrationError(
                f"cannot view {describe(self)} as {dtype}{list(shape)}: "
                f"{self.nbytes} bytes against {nbytes(dtype, shape)}"
            )
        same = (dtype, shape) == (self.dtype, self.shape)
        return self if same else ViewPart(self, dtype, shape)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {describe(self)}>"


class LeafPart(Part):
    """A part whose bytes lie somewhere: in a file, in memory, or (a slot) nowhere yet."""

    __slots__ = ()

    @final
    def bind(self, leaves: Mapping[Part, Part]) -> Part:
        return leaves.get(self, self)

    @final
    def leaves(self) -> Iterator[Part]:
        yield self


class SlotPart(LeafPart):
    """A part with no bytes yet: stands for the parts of many like records in a plan."""

    __slots__ = ("name",)

    def __init__(self, name: str, dtype: str, shape: Shape) -> None:
        super().__init__(dtype, shape)
        self.name = name

    def read(self) -> torch.Tensor:
        raise MigrationError(
            f"part {self.name!r} has no bytes here: a migration may not look at values to decide "
            f"what it makes; use compute()"
        )


class TensorPart(LeafPart):
    """A tensor in memory."""

    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        super().__init__(dtype_name(tensor.dtype), tuple(tensor.shape))
        self.tensor = tensor

    def read(self) -> torch.Tensor:
        # A lazy conjugate or negative has other bytes than it shows; they are written as it shows.
        return self.tensor.detach().resolve_conj().resolve_neg().contiguous()


class ViewPart(Part):
    """The bytes of another part under another dtype or shape."""

    __slots__ = ("base",)

    base: Part

    def __init__(self, base: Part, dtype: str, shape: Shape) -> None:
        super().__init__(dtype, shape)
        self.base = base.base if isinstance(base, ViewPart) else base

    def read(self) -> torch.Tensor:
        # view(dtype) rescales the last dimension, and a 0-d tensor has none: go through flat bytes
        dtype = torch_dtype(self.dtype)
        flat = self.base.read_bytes()
        if flat.data_ptr() % dtype.itemsize:  # aligned for bytes is not yet aligned for numbers
            flat = flat.clone()
        return flat.view(dtype).reshape(self.shape)

    def read_bytes(self) -> torch.Tensor:
        return self.base.read_bytes()

    def pieces(self, size: int) -> Iterator[torch.Tensor]:
        return self.base.pieces(size)

    def bind(self, leaves: Mapping[Part, Part]) -> Part:
        return self.base.bind(leaves).view(self.dtype, self.shape)

    def leaves(self) -> Iterator[Part]:
        return self.base.leaves()


def nbytes(dtype: str, shape: Shape) -> int:
    """Bytes of a contiguous tensor of that dtype and shape (Python ints, never overflows)."""
    row = BY_NAME[dtype]
    # F4's table row counts codes of four bits; torch's element is a byte of two of them
    bits = row.bits if not row.in_torch else row.itemsize * 8
    return math.prod(shape) * bits // 8


def describe(part: Part) -> str:
    """`float8_e4m3fn[32, 64]`."""
    return f"{part.dtype}{list(part.shape)}"
