"""Products with one weight by `products.c`, of tensors."""

from __future__ import annotations

from typing import NamedTuple

import torch

from aoserial.kernels.cpu.native.library import CALL, FORMATS, Library, Tiles, WeightFields
from aoserial.kernels.cpu.native.quantizing import RowCodes
from aoserial.kernels.cpu.native.threads import threads

_NARROW = torch.bfloat16
DTYPES = (_NARROW, torch.float32)  # of activations, biases and results


class Numbers(NamedTuple):
    """A weight in the form of products.c, [N, K] = ((value - taken) scale + added) unit.

    Attributes:
        codes: contiguous, N rows of K times `bits`.
        scale, taken, added: float32, contiguous, [N or less, K or less], a number a block.
            Products of codes have scales of [N, 1] alone; where they are to be in tiles, K is a
            multiple of 64, and `taken` are the sums of the rows' codes, [N].
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
    """Products with one weight, which products.c is told of once, and again if its memory moves."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._codes, self._scale = numbers.codes, numbers.scale
        self._rows = numbers.codes.shape[0]
        self._columns = numbers.codes.shape[1] * 8 // numbers.bits
        self._elements = self._rows * self._columns
        self._places = (0, 0)
        self._weight = b""

    def of_numbers(
        self, library: Library, x: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """x [M, K] times the weight, and a bias [N], added up in float32: [M, N] in x's dtype.

        Args:
            x: bfloat16 or float32, contiguous.
            bias: bfloat16 or float32, contiguous.
        """
        count, narrow = x.shape[0], x.dtype is _NARROW
        y = x.new_empty((count, self._rows))  # where x is, by whatever default device
        call = CALL.pack(
            x.data_ptr(),
            0,
            0,
            0 if bias is None else bias.data_ptr(),
            y.data_ptr(),
            count,
            narrow,
            bias is not None and bias.dtype is _NARROW,
            narrow,
            threads(self._elements),
            library.tiles,
        )
        if not library.multiply(self._told() + call):
            raise MemoryError(f"there is no memory for an activation of {list(x.shape)}")
        return y

    def of_codes(
        self,
        library: Library,
        x: RowCodes,
        dtype: torch.dtype,
        bias: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Codes [M, K] times those of the weight, scaled, and a bias [N]: [M, N].

        Sums are exact and rounded once to float32, for K up to 65536.

        Args:
            x: the weight has a scale a row as well.
            dtype: of the result, bfloat16 or float32.
            bias: bfloat16 or float32, contiguous.
        """
        codes, scale, zero_point = x
        count = codes.shape[0]
        y = codes.new_empty((count, self._rows), dtype=dtype)
        call = CALL.pack(
            codes.data_ptr(),
            scale.data_ptr(),
            0 if zero_point is None else zero_point.data_ptr(),
            0 if bias is None else bias.data_ptr(),
            y.data_ptr(),
            count,
            False,
            bias is not None and bias.dtype is _NARROW,
            dtype is _NARROW,
            threads(self._elements),
            Tiles.NONE if self._numbers.taken is None else library.tiles,
        )
        if not library.multiply_codes(self._told() + call):
            raise MemoryError(f"there is no memory for an activation of {list(codes.shape)}")
        return y

    def _told(self) -> bytes:
        """The weight as products.c has it. All of it moves at once, as by `share_memory_`."""
        places = (self._codes.data_ptr(), self._scale.data_ptr())
        if places != self._places:
            self._places, self._weight = places, self._fields().packed()
        return self._weight

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
