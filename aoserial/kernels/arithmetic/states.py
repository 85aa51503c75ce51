"""Quantizing the states of optimizers: blocks of elements in their order, each to its largest.

Source: 8-bit optimizers (arXiv 2110.02861), 2.1 and appendix; memory-efficient 4-bit optimizers
(arXiv 2309.01507); torchao 0.18, `torchao.optim.quant_utils`, whose bits these are.
"""

from __future__ import annotations

import torch

from aoserial.errors import QuantizationError
from aoserial.kernels.arithmetic.blocks import check_finite, check_floating

_LEAST = 1e-12  # of a block's largest magnitude, so that zeros are not divided by zero


def dynamic_map(bits: int, *, signed: bool) -> torch.Tensor:
    """What codes of 8 or 4 bits stand for: float32 [2**bits], ascending, from 0 or -1 to 1.

    Each tenth of the range before has half as many values, evenly spread; 0 and 1 are among them.
    Unsigned codes of 4 bits are the sixteenths from 1/16 to 1.
    """
    if bits == 4 and not signed:
        return torch.linspace(0, 1, 17)[1:]
    values = [torch.tensor([0.0, 1.0])]
    for decade in range(bits - 1):
        count = 2 ** (decade if signed else decade + 1)
        bounds = torch.linspace(0.1, 1, count + 1)
        middles = 10 ** (decade - bits + 2) * ((bounds[:-1] + bounds[1:]) / 2)
        values += [middles, -middles] if signed else [middles]
    return torch.cat(values).sort().values


def quantize_by_table(
    x: torch.Tensor, table: torch.Tensor, *, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """The code of the nearest entry for each element over its scale, the upper of two as near.

    Args:
        x: floating point, a multiple of `block_size` elements.
        table: float32, ascending.

    Returns:
        codes: uint8, flat. scale: float32 [n / block_size], the largest magnitude.

    Raises:
        QuantizationError: `x` holds an infinity or NaN, is no floating-point tensor, or is not made
            of whole blocks.
    """
    blocks, scale = _blocks(x, block_size)
    values = blocks / scale.unsqueeze(-1)
    lower = (torch.searchsorted(table, values, right=True) - 1).clamp(min=0)
    upper = (lower + 1).clamp(max=len(table) - 1)
    up = values - table[lower] >= (table[upper] - table[lower]) * 0.5
    return torch.where(up, upper, lower).to(torch.uint8).flatten(), scale


def quantize_flat_fp8(x: torch.Tensor, *, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """The same as fp8 codes.

    Returns:
        codes: float8_e4m3fn, flat. scale: float32, the largest magnitude over 448.
    """
    blocks, largest = _blocks(x, block_size)
    scale = largest / torch.finfo(torch.float8_e4m3fn).max
    return (blocks / scale.unsqueeze(-1)).to(torch.float8_e4m3fn).flatten(), scale


def _blocks(x: torch.Tensor, block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """[n / block_size, block_size] in float32, and the largest magnitude of each."""
    if x.numel() % block_size or not x.numel():
        raise QuantizationError(f"{x.numel()} elements are not whole blocks of {block_size}")
    blocks = check_floating(x).to(torch.float32).reshape(-1, block_size)
    return blocks, check_finite(blocks.abs().amax(-1)).clip(_LEAST)
