"""NF4: codes of four bits for the quantiles of a normal distribution, with scales quantized twice.

w = table[code] · s, with a scale s for each block of elements. The scales are int8 codes for their
distance to their mean, in blocks of their own: s = code / factor + mean.

Source: QLoRA (arXiv 2305.14314), 3; torchao 0.1 to 0.18, `NF4Tensor`, whose bits these are.
"""

from __future__ import annotations

import torch

from aoserial.errors import QuantizationError
from aoserial.kernels.arithmetic.blocks import check_finite, check_floating
from aoserial.kernels.arithmetic.lookup import look_up_pairs, scale_flat

# torchao's, four digits each
NF4_TABLE = (
    *(-1.0, -0.6962, -0.5251, -0.3949, -0.2844, -0.1848, -0.0911, 0.0),
    *(0.0796, 0.1609, 0.2461, 0.3379, 0.4407, 0.5626, 0.7230, 1.0),
)
NF4_ZERO = NF4_TABLE.index(0.0)


def dequantize_nf4(
    packed: torch.Tensor,
    scalers: torch.Tensor,
    factor: torch.Tensor,
    mean: torch.Tensor,
    table: torch.Tensor,
    *,
    block_size: int,
    scaler_block_size: int,
) -> torch.Tensor:
    """The weight, flat [n], in the dtype of `table`.

    Args:
        packed: uint8 [n / 2], the first code of two in the high nibble.
        scalers: int8 [n / block_size].
        factor: [n / block_size / scaler_block_size], what scalers are divided by.
        mean: of all scales, one number.
        table: [16].
    """
    scale = (scalers.reshape(-1, scaler_block_size) / factor.unsqueeze(-1)).flatten() + mean
    return scale_flat(look_up_pairs(packed, table), scale, block_size)


def quantize_nf4(
    w: torch.Tensor, *, block_size: int, scaler_block_size: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """packed, scalers, factor, mean and table of a weight, as `dequantize_nf4` takes them.

    Everything is computed in the dtype of `w`, so that the bits are torchao's; except that a block
    of zeros has the code of zero, where torchao divides by zero and takes the code of -1.

    Raises:
        QuantizationError: `w` holds an infinity or NaN, is no floating-point tensor, or is not
            made of whole blocks of scales.
    """
    flat = check_floating(w).flatten()
    if flat.numel() % (block_size * scaler_block_size) or not flat.numel():
        raise QuantizationError(
            f"{flat.numel()} elements are not whole blocks of {block_size} with "
            f"{scaler_block_size} scales to a block of scales"
        )
    blocks = flat.view(-1, block_size)
    scale = check_finite(blocks.abs().amax(-1))
    table = torch.tensor(NF4_TABLE, dtype=w.dtype, device=w.device)
    codes = _nearest(blocks / scale.unsqueeze(-1), table)
    codes[scale == 0] = NF4_ZERO
    codes = codes.flatten()
    mean = scale.mean()
    apart = (scale - mean).view(-1, scaler_block_size)
    factor = 256 / (2 * apart.abs().amax(-1))
    scalers = (apart * factor.unsqueeze(-1)).round().clamp(-128, 127)
    scalers = scalers.nan_to_num(0.0).to(torch.int8).flatten()  # all equal: 0 times infinity
    return codes[::2] << 4 | codes[1::2], scalers, factor, mean, table


def _nearest(values: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    """The code of the nearest entry, the lower code of two as near; uint8.

    Distances are rounded to the dtype of `values`, which decides between two in half precision.
    """
    nearest = (values - table[0]).abs()
    codes = torch.zeros_like(values, dtype=torch.uint8)
    for code in range(1, len(table)):
        distance = (values - table[code]).abs()
        closer = distance < nearest
        nearest = torch.where(closer, distance, nearest)
        codes[closer] = code
    return codes
