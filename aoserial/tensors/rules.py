"""Rules for the values in the parts of a record.

A rule is given a record at the head of its type and the tensor of one of its parts, and says what
is wrong with it, in a sentence each. Ranges are those of the types' declarations in
`schema.builtin`. Tensors are gone through piece by piece.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypeAlias

import torch

from aoserial.kernels import ELEMENTS
from aoserial.record import Record
from aoserial.schema import Symbol

Rule: TypeAlias = Callable[[Record, torch.Tensor], Iterator[str]]
_Wrong: TypeAlias = Callable[[torch.Tensor], torch.Tensor]

_PIECE = 1 << 20  # elements that are looked at together: their masks stay in cache
_IN_CODES = Symbol("aoserial.ZeroDomain", "int")
_E8M0_NAN = 255  # OCP MX 1.0, 5.4.1: the only code of a scale that is no power of two


# -- rules of one element -----------------------------------------------------------------------


def finite(_: Record, tensor: torch.Tensor) -> Iterator[str]:
    if tensor.is_floating_point():
        yield from _count(tensor, _not_finite, "are infinite or NaN")


def not_negative(_: Record, tensor: torch.Tensor) -> Iterator[str]:
    yield from _count(tensor, lambda piece: _wide(piece) < 0, "are negative")


def not_zero(_: Record, tensor: torch.Tensor) -> Iterator[str]:
    yield from _count(tensor, lambda piece: piece == 0, "are zero, and divide")


def no_divisor(_: Record, tensor: torch.Tensor) -> Iterator[str]:
    """An infinite divisor is one: what it divides is 0."""
    yield from _count(tensor, lambda piece: piece.isnan() | (piece == 0), "are zero or NaN")


def power_of_two(_: Record, tensor: torch.Tensor) -> Iterator[str]:
    yield from _count(tensor, lambda piece: piece == _E8M0_NAN, "are NaN (e8m0 code 255)")


def size(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    """A scale that was made from the largest magnitude of values."""
    yield from finite(record, tensor)
    yield from not_negative(record, tensor)


def integers_within(least: int, greatest: int) -> Rule:
    """Of that range if they are integers, else finite."""

    def rule(record: Record, tensor: torch.Tensor) -> Iterator[str]:
        if tensor.is_floating_point():
            yield from finite(record, tensor)
        else:
            yield from _outside(tensor, least, greatest)

    return rule


# -- rules that go by attributes ----------------------------------------------------------------


def signed_codes(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    bits = _number(record, "bit_width")
    if 1 <= bits <= 8:
        half = 1 << bits - 1
        yield from _outside(tensor, -half, half - 1)
    else:
        yield f"has codes of {bits} bits, expected 1 to 8"


def unsigned_codes(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    bits = _number(record, "bit_width")
    if 1 <= bits <= 8:
        yield from _outside(tensor, 0, (1 << bits) - 1)
    else:
        yield f"has codes of {bits} bits, expected 1 to 8"


def reduced_codes(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    if record.attributes.get("reduce_range") is True:
        yield from _outside(tensor, -64, 63)


def floatx_codes(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    exponent, mantissa = _number(record, "exponent_bits"), _number(record, "mantissa_bits")
    if exponent < 1 or mantissa < 0 or exponent + mantissa > 6:
        yield f"has {exponent} bits of exponent and {mantissa} of mantissa, expected 6 at most"
        return
    yield from _outside(tensor, 0, (2 << exponent + mantissa) - 1)


def mx_elements(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    """fp8 is a number, fp6 has nothing in the two high bits; all codes of fp4 are elements."""
    name = str(record.attributes["element"])
    element, packed = ELEMENTS.get(name), record.attributes["codes_per_byte"]
    if element is None:
        yield f"has elements of {name!r:.60}, expected one of {', '.join(ELEMENTS)}"
    elif element.codes_per_byte != packed:
        yield f"has {packed} codes in a byte, but of {name} a byte holds {element.codes_per_byte}"
    elif tensor.dtype != (element.dtype or torch.uint8):
        yield f"is {tensor.dtype}, but its elements are {name}"
    elif element.dtype is not None:
        yield from finite(record, tensor)
    elif packed == 1:
        bits = 1 + element.exponent_bits + element.mantissa_bits
        yield from _outside(tensor, 0, (1 << bits) - 1)


def zero_points(least: int, greatest: int) -> Rule:
    """In codes they are codes, and up to one more: GPTQ stores them less 1, 15 for 16.

    Those that are fractional may lie outside: a block that has no zero in it has such.
    """

    in_codes = integers_within(least, greatest + 1)

    def rule(record: Record, tensor: torch.Tensor) -> Iterator[str]:
        meaning = record.attributes.get("zero_domain", _IN_CODES)
        yield from (in_codes if meaning == _IN_CODES else finite)(record, tensor)

    return rule


def intx_zero_points(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    bits = _number(record, "bit_width")
    if 1 <= bits <= 8:
        half = 1 << bits - 1
        yield from zero_points(-half, half - 1)(record, tensor)


def tensor_scale(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    yield from size(record, tensor)
    if record.attributes.get("per_tensor_scale_op") == Symbol("aoserial.ScaleOp", "divide"):
        yield from not_zero(record, tensor)


# -- rules that go by other parts ---------------------------------------------------------------


def groups(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    count = record.parts["scale"].shape[-1]
    what = f"name no group of {count}"
    yield from _count(tensor, lambda piece: (piece < 0) | (piece >= count), what)


def entries(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    """Codes that stand for entries of tables [..., C, R, V]."""
    count = record.parts["codebook"].shape[-3]
    what = f"stand for no entry of {count}"
    yield from _count(tensor, lambda piece: (piece < 0) | (piece >= count), what)


def row_starts(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    count, side = record.parts["block_values"].shape[:2]
    rows = record.shape[0] // side if side else 0
    if tensor.shape != (rows + 1,):
        yield f"has shape {list(tensor.shape)}, expected [{rows + 1}]: of each row, and the end"
    elif (int(tensor[0]), int(tensor[-1])) != (0, count) or bool((tensor.diff() < 0).any()):
        yield f"does not rise from 0 to {count}, the number of blocks"


def block_columns(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    count, side = record.parts["block_values"].shape[:2]
    columns = record.shape[1] // side if side else 0
    what = f"are not among the {columns} columns of blocks"
    yield from _count(tensor, lambda piece: (piece < 0) | (piece >= columns), what)
    first = torch.zeros(count + 1, dtype=torch.bool)
    starts = record.parts["row_starts"].read()
    if count and bool(((starts >= 0) & (starts <= count)).all()):
        first[starts.to(torch.int64)] = True
        unordered = (tensor.diff() <= 0) & ~first[1:count]
        yield from _count(unordered, lambda piece: piece, "do not rise within their row")


def ascending(record: Record, tensor: torch.Tensor) -> Iterator[str]:
    yield from finite(record, tensor)
    yield from _count(tensor.diff() < 0, lambda piece: piece, "are followed by a smaller one")


# -- what they have in common -------------------------------------------------------------------


def _outside(tensor: torch.Tensor, least: int, greatest: int) -> Iterator[str]:
    limits = torch.iinfo(tensor.dtype)
    if limits.min >= least and limits.max <= greatest:
        return
    # a bound that the dtype cannot hold would wrap round in it, so that is not compared with
    low, high = max(least, limits.min), min(greatest, limits.max)
    what = f"are not from {least} to {greatest}"
    yield from _count(tensor, lambda piece: (piece < low) | (piece > high), what)


def _not_finite(piece: torch.Tensor) -> torch.Tensor:
    return ~torch.isfinite(_wide(piece))


def _wide(piece: torch.Tensor) -> torch.Tensor:
    """fp8 has no arithmetic of its own; widening is exact."""
    return piece.float() if piece.is_floating_point() and piece.itemsize == 1 else piece


def _count(tensor: torch.Tensor, wrong: _Wrong, what: str) -> Iterator[str]:
    """Says how many elements are wrong, and the first of them by its place in order."""
    flat = tensor.detach().reshape(-1)
    found, first = 0, 0
    for start in range(0, flat.numel(), _PIECE):
        mask = wrong(flat[start : start + _PIECE])
        count = int(mask.sum())
        if count and not found:
            first = start + int(mask.nonzero()[0])
        found += count
    if found:
        yield f"{found} of {flat.numel()} values {what}, the first at {first}"


def _number(record: Record, name: str) -> int:
    value = record.attributes[name]
    assert isinstance(value, int)  # the schema says so
    return value
