"""How far apart the values of two stored tensors are. One pair is in memory at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from aoserial.checkpoint.archives import Archive
from aoserial.checkpoint.building import migrated_record
from aoserial.checkpoint.comparing import TensorDifference, ValueDifference
from aoserial.checkpoint.contents import Prepared
from aoserial.checkpoint.dequantizing import dequantizer
from aoserial.errors import AoserialError, UnknownTypeError
from aoserial.storage import DTYPES, Part, Shape

_ELEMENTS = 1 << 20  # at once: 8 MiB in float64, of which measuring needs a few
_PACKED = torch.float4_e2m1fn_x2  # two codes an element, which torch does not compute with
_BYTES_ALONE = {row.name for row in DTYPES if not row.in_torch}


@dataclass(frozen=True, kw_only=True)
class Meant:
    """A stored tensor and how to get at what it stands for.

    Attributes:
        shape: logical.
        parts: of the record at the head of its type; of a plain tensor itself, under no name.
        values: gives the plain tensor, or raises why there is none.
    """

    shape: Shape
    parts: Mapping[str, Part]
    values: Callable[[], torch.Tensor]

    @classmethod
    def plain(cls, part: Part) -> Meant:
        return cls(shape=part.shape, parts={"": part}, values=part.read)

    @classmethod
    def of(cls, file: Archive, one: Prepared, keys: Sequence[str]) -> Meant:
        record = migrated_record(file, one, keys)

        def values() -> torch.Tensor:
            if one.outcome is None:
                reason = one.reason or "nobody registered its type"
                raise UnknownTypeError(f"it is inert: {reason}", type=record.type)
            return dequantizer(record)(*(part.read() for part in record.parts.values()))

        return cls(shape=record.shape, parts=record.parts, values=values)


def difference(left: Meant, right: Meant, *, alike: bool) -> TensorDifference | None:
    """How the values of two tensors differ; None if all of them are the same bits.

    Args:
        alike: nothing else differs, so that equal parts are equal tensors.
    """
    parts: dict[str, ValueDifference] = {}
    try:
        if alike:
            parts = dict(_unequal_parts(left.parts, right.parts))
            if not parts:
                return None
            if "" in parts:
                return TensorDifference(name="", values=parts[""])
        if left.shape != right.shape:
            return TensorDifference(name="", note="their shapes differ")
        return TensorDifference(name="", parts=parts, values=apart(left.values(), right.values()))
    except AoserialError as error:
        return TensorDifference(name="", parts=parts, note=error.message)


def _unequal_parts(
    left: Mapping[str, Part], right: Mapping[str, Part]
) -> Iterator[tuple[str, ValueDifference]]:
    for name, part in left.items():
        if part.dtype in _BYTES_ALONE:
            found = apart(part.read_bytes(), right[name].read_bytes(), computable=False)
        else:
            found = apart(part.read(), right[name].read())
        if found is not None:
            yield name, found


def apart(
    left: torch.Tensor, right: torch.Tensor, *, computable: bool = True
) -> ValueDifference | None:
    """How two tensors of one shape differ; None if they have one dtype and the same bits.

    Args:
        computable: whether the elements are numbers; else they are codes, and counted alone.
    """
    mine, theirs = left.detach().reshape(-1), right.detach().reshape(-1)
    if mine.dtype == theirs.dtype and _same_bits(mine, theirs):
        return None
    computable = computable and _PACKED not in (mine.dtype, theirs.dtype)
    unequal, absolute, relative = 0, 0.0, 0.0
    for a, b in _pieces(mine, theirs):
        if not computable:
            unequal += int((_codes(a) != _codes(b)).sum())
            continue
        count, gap, share = _measure(a, b)
        unequal, absolute, relative = unequal + count, max(absolute, gap), max(relative, share)
    return ValueDifference(
        elements=mine.numel(),
        unequal=unequal,
        max_absolute=absolute if computable else None,
        max_relative=relative if computable else None,
    )


def _same_bits(left: torch.Tensor, right: torch.Tensor) -> bool:
    return all(torch.equal(_words(a), _words(b)) for a, b in _pieces(left, right))


def _pieces(left: torch.Tensor, right: torch.Tensor) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    for start in range(0, left.numel(), _ELEMENTS):
        yield left[start : start + _ELEMENTS], right[start : start + _ELEMENTS]


def _words(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes of a flat tensor, eight at a time where they come so: comparing them is faster."""
    codes = tensor.contiguous().view(torch.uint8)
    whole = codes.numel() % 8 == 0 and codes.data_ptr() % 8 == 0
    return codes.view(torch.int64) if whole else codes


def _codes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


def _measure(left: torch.Tensor, right: torch.Tensor) -> tuple[int, float, float]:
    """Of flat tensors: how many elements differ, and the largest gap, absolute and relative."""
    mine, theirs = _widened(left), _widened(right)
    integers = left.dtype == right.dtype and not (left.is_floating_point() or left.is_complex())
    # beyond 2**53, integers that differ widen to the same float
    same = left == right if integers else (mine == theirs) | (mine.isnan() & theirs.isnan())
    unequal = ~same
    count = int(unequal.sum())
    if not count:
        return 0, 0.0, 0.0
    mine, theirs = mine[unequal], theirs[unequal]
    gap = (mine - theirs).abs().nan_to_num(nan=math.inf, posinf=math.inf)
    share = (gap / torch.maximum(mine.abs(), theirs.abs())).nan_to_num(
        nan=math.inf, posinf=math.inf
    )
    return count, float(gap.max()), float(share.max())


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    # small floats widen to float32 alone
    return (tensor.float() if tensor.itemsize == 1 else tensor).to(torch.float64)
