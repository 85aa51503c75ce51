"""What `products.c` computes, of tensors."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from aoserial.kernels.cpu.native.library import FORMATS, MOST_ROWS, Library, WeightStruct

_SMALL = 1 << 18  # elements of a weight below which threads cost more than they save


class Numbers(NamedTuple):
    """A weight in the form of products.c, [N, K] = ((value - taken) scale + added) unit.

    Attributes:
        codes: contiguous, N rows of K times `bits`.
        scale, taken, added: float32, contiguous, [N or less, K or less], a number a block.
        decoder: of `FORMATS`: what gives the values, in units of `unit`.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    taken: torch.Tensor | None
    added: torch.Tensor | None
    decoder: str
    bits: int
    unit: float


def of_numbers(library: Library, x: torch.Tensor, numbers: Numbers) -> torch.Tensor:
    """x [M, K] in bfloat16 or float32, contiguous, times a weight, [M, N] in float32."""
    codes, scale, taken, added, decoder, bits, unit = numbers
    (count, columns), rows = x.shape, codes.shape[0]
    weight = WeightStruct(
        codes=codes.data_ptr(),
        scale=scale.data_ptr(),
        taken=None if taken is None else taken.data_ptr(),
        added=None if added is None else added.data_ptr(),
        rows=rows,
        columns=columns,
        group=columns // scale.shape[1],
        block_rows=rows // scale.shape[0],
        format=FORMATS.index(decoder),
        bits=bits,
        unit=unit,
    )
    placed = x.new_empty((min(count, MOST_ROWS), columns), dtype=torch.float32)
    y = x.new_empty((count, rows), dtype=torch.float32)  # where x is, by whatever default
    library.multiply(
        weight,
        x.data_ptr(),
        x.dtype == torch.bfloat16,
        count,
        placed.data_ptr(),
        y.data_ptr(),
        _threads(rows * columns),
    )
    return y


def of_codes(library: Library, x: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """x [M, K] in int16 times int8 codes [N, K], contiguous both: [M, N] in float32.

    Sums are exact, and rounded once, for |x| up to 255 and K up to 65536.
    """
    (count, columns), rows = x.shape, codes.shape[0]
    y = x.new_empty((count, rows), dtype=torch.float32)  # where x is, by whatever default
    weight = WeightStruct(codes=codes.data_ptr(), rows=rows, columns=columns)
    threads = _threads(rows * columns)
    library.multiply_codes(weight, x.data_ptr(), count, y.data_ptr(), threads)
    return y


class _Process:
    """Whether this one is a fork: it has none of its parent's threads, and would wait for them."""

    is_fork = False


os.register_at_fork(after_in_child=lambda: setattr(_Process, "is_fork", True))


def _threads(elements: int) -> int:
    return 1 if elements < _SMALL or _Process.is_fork else torch.get_num_threads()
