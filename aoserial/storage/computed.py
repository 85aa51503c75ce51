"""Parts that a function makes of others when they are read, whole or by rows. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aoserial.errors import MigrationError
from aoserial.storage.dtypes import BY_NAME, dtype_name
from aoserial.storage.part import Part, Shape

if TYPE_CHECKING:
    import torch


# How large the pieces are that files are written of. Steps that unpack tiles need twelve times as
# much beside them, so that 16 MiB would be too much; the smaller they are, the more often torch's
# threads are woken, and wait where other programs have the cores.
PIECE_BYTES = 12 << 20


@dataclass(frozen=True, slots=True)
class Slabs:
    """How rows of a computed part are made without the others.

    Attributes:
        make: takes the first row, the one after the last, and the tensors that the part's function
            takes; returns those rows of what that function returns, bit for bit.
        grain: the first row is always a multiple of it.
    """

    make: Callable[..., Any]
    grain: int = 1


class ComputedPart(Part):
    """A part made by a function of other parts' tensors when it is read.

    Args:
        slabs: how to make it a few rows at a time; None where that cannot be.
    """

    __slots__ = ("function", "inputs", "slabs")

    def __init__(
        self,
        function: Callable[..., Any],
        inputs: tuple[Part, ...],
        dtype: str,
        shape: Shape,
        slabs: Slabs | None = None,
    ) -> None:
        super().__init__(dtype, shape)
        self.function = function
        self.inputs = inputs
        self.slabs = slabs

    def read(self) -> torch.Tensor:
        return self._make(self.function, [part.read() for part in self.inputs], self.shape)

    def pieces(self, size: int) -> Iterator[torch.Tensor]:
        if self.slabs is None or self.nbytes <= size or not self.shape:
            yield self.read_bytes()
            return
        import torch  # torch-free module

        height, grain = self.shape[0], self.slabs.grain
        rows = max(1, size * height // self.nbytes // grain) * grain
        tensors = [part.read() for part in self.inputs]
        for start in range(0, height, rows):
            stop = min(height, start + rows)
            shape = (stop - start, *self.shape[1:])
            made = self._make(self.slabs.make, [start, stop, *tensors], shape)
            yield made.reshape(-1).view(torch.uint8)

    def _make(
        self, function: Callable[..., Any], arguments: Sequence[Any], shape: Shape
    ) -> torch.Tensor:
        try:
            tensor: torch.Tensor = function(*arguments)
        except Exception as error:
            raise MigrationError(
                f"{name_of(self.function)} failed: {type(error).__name__}: {error}"
            ) from error
        made = (dtype_name(tensor.dtype), tuple(tensor.shape))
        if made != (self.dtype, shape):
            raise MigrationError(
                f"{name_of(self.function)} declared {self.dtype}{list(shape)} "
                f"but made {made[0]}{list(made[1])}"
            )
        return tensor.contiguous()

    def bind(self, leaves: Mapping[Part, Part]) -> Part:
        inputs = tuple(part.bind(leaves) for part in self.inputs)
        return ComputedPart(self.function, inputs, self.dtype, self.shape, self.slabs)

    def leaves(self) -> Iterator[Part]:
        for part in self.inputs:
            yield from part.leaves()


def compute(
    function: Callable[..., Any],
    *parts: Part,
    dtype: str,
    shape: Shape,
    by_rows: int | Slabs | None = None,
) -> Part:
    """A part that `function(*tensors)` makes when it is read.

    Args:
        function: takes the tensors of `parts` in order, returns one tensor; must be pure.
        dtype: torch's name of the result's dtype.
        shape: the result's shape. A result that differs from either raises `MigrationError`.
        by_rows: n says that `function` makes n rows of the result, along its first dimension, of
            each row of the tensors, whatever the other rows are (of the last, perhaps fewer). Large
            parts then pass through memory a few rows at a time. `Slabs` says more.
    """
    if dtype not in BY_NAME:
        raise MigrationError(f"{name_of(function)} declares an unknown dtype {dtype!r}")
    slabs = rows_of(function, by_rows) if isinstance(by_rows, int) else by_rows
    return ComputedPart(function, parts, dtype, shape, slabs)


def rows_of(function: Callable[..., Any], each: int) -> Slabs:
    """Slabs of a function that makes `each` rows of one row of its tensors."""

    def make(start: int, stop: int, *tensors: torch.Tensor) -> torch.Tensor:
        first, last = start // each, -(-stop // each)
        made: torch.Tensor = function(*(tensor[first:last] for tensor in tensors))
        return made[: stop - start]

    return Slabs(make, each)


def name_of(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", repr(function))
