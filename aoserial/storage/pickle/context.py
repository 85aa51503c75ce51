"""What the functions that recognise tensors share. Torch-free."""

from __future__ import annotations

from aoserial.errors import BoundsError, PickleError
from aoserial.storage.pickle.builder import kind_of
from aoserial.storage.pickle.dtypes import ITEMSIZES, QUANTIZED_CODES
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.tensors import StoragePart, TypedStorage, check_bounds
from aoserial.storage.pickle.values import TorchSize, Value


class Context:
    """Makes parts, and counts what is left out."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._max_rank = limits.rank
        self._hooked = 0

    def part(
        self, storage: TypedStorage, dtype: str, offset: Value, size: Value, stride: Value
    ) -> StoragePart:
        """A tensor in a storage, its bounds checked."""
        shape, strides = self.sizes(size), self.sizes(stride)
        if type(offset) is not int:
            raise PickleError(f"a tensor begins at {kind_of(offset)} of its storage")
        count, start = storage.count, storage.offset
        if dtype != storage.dtype:
            # as bytes, and from there as elements of the other dtype
            ratio, width = ITEMSIZES[storage.dtype], ITEMSIZES[dtype]
            count = count * ratio // width
            if start * ratio % width:
                raise BoundsError(f"a tensor of {dtype} begins in the middle of an element")
            start = start * ratio // width
        contiguous = check_bounds(shape, strides, offset, count)
        # the codes of a quantized dtype, where torch has lost the scale they need
        dtype = QUANTIZED_CODES.get(dtype, dtype)
        start += offset
        return StoragePart(dtype, shape, strides, start, storage.storage, contiguous=contiguous)

    def sizes(self, value: Value) -> tuple[int, ...]:
        """A shape or strides: a tuple of ints, or a torch.Size."""
        if type(value) is not tuple:
            if type(value) is not TorchSize:
                raise PickleError(f"a shape or strides are {kind_of(value)}, not a tuple")
            value = tuple(value)
        if len(value) > self._max_rank:
            self.limits.check("rank", len(value))
        for number in value:
            if type(number) is not int:  # bools neither: `check_bounds` takes them for ints
                raise PickleError(f"a shape or strides hold {kind_of(number)}")
        return value  # type: ignore[no-any-return]

    def see_hooks(self, hooks: Value) -> None:
        """Backward hooks: torch writes an empty dict of them, and so did everybody lately."""
        if hooks:
            self._hooked += 1

    def notes(self) -> list[str]:
        return [f"dropped the backward hooks of {self._hooked} tensors"] if self._hooked else []
