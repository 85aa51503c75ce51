"""What goes into an operator, and what comes out of it."""

from __future__ import annotations

import torch

from aoserial.errors import PackingError
from aoserial.storage.dtypes import dtype_name

_ALIGNMENT_BYTES = 16  # what cuBLASLt asks of a matrix


def exactly(values: torch.Tensor, dtype: torch.dtype, name: str) -> torch.Tensor:
    """The values in a dtype that holds each of them.

    Raises:
        PackingError: it does not.
    """
    found = values.to(dtype)
    same = (found == values) | (found.isnan() & values.isnan())
    if not bool(same.all()):
        raise PackingError(
            f"{name} is {dtype_name(values.dtype)} and its values are not all {dtype_name(dtype)}, "
            f"in which the kernel takes them"
        )
    return found


def in_rows(codes: torch.Tensor) -> torch.Tensor:
    """Codes [N, K] row after row and aligned; themselves if they are so already."""
    offset_bytes = codes.storage_offset() * codes.element_size()
    if codes.is_contiguous() and offset_bytes % _ALIGNMENT_BYTES == 0:
        return codes
    return codes.clone(memory_format=torch.contiguous_format)


def finish(y: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Products float32 [M, N], and the bias, as the result for `x` [..., K]."""
    if bias is not None:
        y = y + bias.to(torch.float32)
    return y.to(x.dtype).reshape(*x.shape[:-1], y.shape[-1])
