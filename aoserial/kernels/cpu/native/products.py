"""Products with one weight by `products.c`, of tensors."""

from __future__ import annotations

import os
from typing import NamedTuple

import torch

from aoserial.kernels.cpu.native.library import FORMATS, CallFields, Library, WeightFields

_SMALL = 1 << 18  # elements of a weight below which threads cost more than they save


class Numbers(NamedTuple):
    """A weight in the form of products.c, [N, K] = ((value - taken) scale + added) unit.

    Attributes:
        codes: contiguous, N rows of K times `bits`.
        scale, taken, added: float32, contiguous, [N or less, K or less], a number a block.
            Products of codes have scales of [N, 1] alone.
        decoder: of `FORMATS`: what gives the values, in units of `unit`.
        in_integers: up to so many rows are to be multiplied in integers. Codes are then nibbles,
            all numbers are finite, and what is taken is integers, by which no value becomes larger
            than 31.
    """

    codes: torch.Tensor
    scale: torch.Tensor
    taken: torch.Tensor | None
    added: torch.Tensor | None
    decoder: str
    bits: int
    unit: float
    in_integers: int = 0


class Products:
    """What products.c is told of a weight: once, and anew where its memory has become another."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._codes, self._scale = numbers.codes, numbers.scale
        self._rows = len(numbers.codes)
        self._columns = numbers.codes.shape[1] * 8 // numbers.bits
        self._places = (0, 0)
        self._told = b""

    def of_numbers(
        self, library: Library, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [M, K] times the weight, and a bias [N], added up in float32: [M, N] in x's dtype.

        Args:
            x: bfloat16 or float32, contiguous.
            bias: bfloat16 or float32, contiguous.
        """
        y = x.new_empty((len(x), self._rows))  # where x is, by whatever default device
        if not library.multiply(self._told_now() + self._call(x, None, bias, y)):
            raise MemoryError(f"there is no memory for {len(x)} rows of {self._columns} numbers")
        return y

    def of_codes(
        self,
        library: Library,
        x: torch.Tensor,
        scale: torch.Tensor,
        dtype: torch.dtype,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Codes [M, K] times those of the weight, in int8, scaled, and a bias [N]: [M, N].

        Sums are exact and rounded once to float32, for codes of x up to 255 and K up to 65536.

        Args:
            x: int16, contiguous.
            scale: of each row of x, float32 [M], contiguous. The weight has one a row as well.
            dtype: of the result, bfloat16 or float32.
            bias: bfloat16 or float32, contiguous.
        """
        y = x.new_empty((len(x), self._rows), dtype=dtype)
        library.multiply_codes(self._told_now() + self._call(x, scale, bias, y))
        return y

    def _told_now(self) -> bytes:
        places = (self._codes.data_ptr(), self._scale.data_ptr())
        if places != self._places:
            self._places, self._told = places, self._fields().packed()
        return self._told

    def _fields(self) -> WeightFields:
        codes, scale, taken, added, decoder, bits, unit, in_integers = self._numbers
        return WeightFields(
            codes=codes.data_ptr(),
            scale=scale.data_ptr(),
            taken=0 if taken is None else taken.data_ptr(),
            added=0 if added is None else added.data_ptr(),
            rows=self._rows,
            columns=self._columns,
            group=self._columns // scale.shape[1],
            block_rows=self._rows // scale.shape[0],
            format=FORMATS.index(decoder),
            bits=bits,
            unit=unit,
            in_integers=in_integers,
        )

    def _call(
        self,
        x: torch.Tensor,
        scale: torch.Tensor | None,
        bias: torch.Tensor | None,
        y: torch.Tensor,
    ) -> bytes:
        return CallFields(
            x=x.data_ptr(),
            x_scale=0 if scale is None else scale.data_ptr(),
            bias=0 if bias is None else bias.data_ptr(),
            y=y.data_ptr(),
            x_rows=len(x),
            x_is_bfloat16=x.dtype == torch.bfloat16,
            bias_is_bfloat16=bias is not None and bias.dtype == torch.bfloat16,
            y_is_bfloat16=y.dtype == torch.bfloat16,
            threads=_threads(self._rows * self._columns),
        ).packed()


class _Process:
    """Whether this one is a fork: it has none of its parent's threads, and would wait for them."""

    is_fork = False


os.register_at_fork(after_in_child=lambda: setattr(_Process, "is_fork", True))


def _threads(elements: int) -> int:
    return 1 if elements < _SMALL or _Process.is_fork else torch.get_num_threads()
