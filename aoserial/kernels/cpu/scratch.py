"""Memory that is kept between calls, a set a thread.

A fresh buffer of some MiB costs a page fault for every 4 KiB of it, which takes longer than
decoding into it.
"""

from __future__ import annotations

import threading

import torch


class Scratch(threading.local):
    """A buffer a dtype, as large as the largest asked for; what is in it is anything."""

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, torch.Tensor] = {}

    def of(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A contiguous tensor that shares its memory with the others of its dtype."""
        length = torch.Size(shape).numel()
        buffer = self._buffers.get(dtype)
        if buffer is None or buffer.numel() < length:
            with torch.inference_mode(False):  # else it could only be written in inference mode
                buffer = self._buffers[dtype] = torch.empty(length, dtype=dtype)
        return buffer[:length].view(shape)


SCRATCH = Scratch()
