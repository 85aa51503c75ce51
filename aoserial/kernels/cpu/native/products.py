"""What `products.c` computes, of tensors."""

from __future__ import annotations

import ctypes
from typing import NamedTuple

import torch

from aoserial.kernels.cpu.native.library import FORMATS, MOST_ROWS, Library, Multiply, WeightStruct
from aoserial.kernels.cpu.workers import WORKERS

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
    """x [M, K] in float32, contiguous, times a weight, [M, N] in float32."""
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
    )
    y = torch.empty((count, rows), dtype=torch.float32)
    for start in range(0, count, MOST_ROWS):
        some, of_some = x, y
        if count > MOST_ROWS:
            some, of_some = x[start : start + MOST_ROWS], y[start : start + MOST_ROWS]
        placed = torch.empty_like(some)
        library.place(some.data_ptr(), some.shape[0], columns, bits, unit, placed.data_ptr())
        _share(library, library.multiply, weight, placed, of_some)
    return y


def of_codes(library: Library, x: torch.Tensor, codes: torch.Tensor) -> torch.Tensor:
    """x [M, K] in int16 times int8 codes [N, K], contiguous both: [M, N], float32.

    Sums are exact, and rounded once, for |x| up to 255 and K up to 65536.
    """
    (count, columns), rows = x.shape, codes.shape[0]
    y = torch.empty((count, rows), dtype=torch.float32)
    weight = WeightStruct(codes=codes.data_ptr(), rows=rows, columns=columns)
    _share(library, library.multiply_codes, weight, x, y)
    return y


def _share(
    library: Library, multiply: Multiply, weight: WeightStruct, x: torch.Tensor, y: torch.Tensor
) -> None:
    """Calls `multiply` on torch's own threads, or on ours where it has none that it could call."""
    count, first = x.shape[0], ctypes.c_int64(0)

    def work(threads: int = 1) -> None:
        multiply(weight, x.data_ptr(), count, y.data_ptr(), first, threads)

    small = weight.rows * weight.columns < _SMALL
    threads = 1 if small else torch.get_num_threads()
    if threads == 1 or (library.has_threads and not WORKERS.forked):
        work(threads)
    else:
        WORKERS.together(work)
