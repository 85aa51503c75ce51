"""The order of int4 codes in tinygemm's tiles, as torch lays them out for NVIDIA devices.

A tile is 8 rows by 32 J codes, J = inner_k_tiles / 2: 1, 2 or 4. Lane t of it holds row t // 4. Its
int32 number j stands for 16 bytes of the row, of which it has bytes t % 4 + 4 i for i from 0 to 3:
nibbles 0 to 3 are their even k, 4 to 7 their odd.

Source: torch 2.13, `_convert_weight_to_int4pack_cuda`. AMD devices use the same shape for another
order.
"""

from __future__ import annotations

import torch


def tile(packed: torch.Tensor, inner_k_tiles: int) -> torch.Tensor:
    """int32 [N/8, K/(16 I), 32, I/2] of codes uint8 [N, K/2], even k in the low nibble.

    Args:
        inner_k_tiles: I: 2, 4 or 8; K is a multiple of 16 I, and N of 8.
    """
    rows, inner = packed.shape[0], inner_k_tiles // 2
    bytes_ = packed.reshape(rows // 8, 8, -1, inner, 4, 4)  # [NT, row, KT, j, i, t % 4]
    lanes = bytes_.permute(0, 2, 1, 5, 3, 4)
    even, odd = lanes & 15, lanes >> 4
    halves = torch.cat(
        [even[..., ::2] | even[..., 1::2] << 4, odd[..., ::2] | odd[..., 1::2] << 4], -1
    )
    return halves.contiguous().view(torch.int32).reshape(rows // 8, -1, 32, inner)


def untile(tiles: torch.Tensor) -> torch.Tensor:
    """Codes uint8 [..., N, K/2], even k in the low nibble, of tiles [..., N/8, K/(32 J), 32, J]."""
    *lead, row_tiles, column_tiles, _, inner = tiles.shape
    lanes = tiles.reshape(-1, row_tiles, column_tiles, 8, 4, inner)
    of_byte = [(lanes >> 4 * i & 15) | (lanes >> 16 + 4 * i & 15) << 4 for i in range(4)]
    whole = torch.stack(of_byte, dim=-1).to(torch.uint8)  # [., NT, KT, row, t % 4, j, i]
    return whole.permute(0, 1, 3, 2, 5, 6, 4).reshape(*lead, row_tiles * 8, -1)
