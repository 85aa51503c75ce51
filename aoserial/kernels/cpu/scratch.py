"""Memory that is kept between calls, a set a thread.

A fresh buffer of some MiB costs a page fault for every 4 KiB of it, which takes longer than
decoding into it.
"""

from __future__ import annotations

import math
import threading

import torch

_MOST_VIEWS = 64  # a thread: of the layers of a model, which are of few shapes


class Scratch(threading.local):
    """A buffer a dtype, as large as the largest asked for; what is in it is anything.

    Views are kept as well: making one takes some microseconds, in which no other thread runs.
    """

    def __init__(self) -> None:
        self._buffers: dict[torch.dtype, torch.Tensor] = {}
        self._views: dict[tuple[torch.dtype, tuple[int, ...]], torch.Tensor] = {}

    def of(self, dtype: torch.dtype, *shape: int) -> torch.Tensor:
        """A contiguous tensor that shares its memory with the others of its dtype.

        Of one's own within `torch.func`, whose tensors do not outlive a transformation.
        """
        if torch._C._functorch.peek_interpreter_stack() is not None:
            return torch.empty(shape, dtype=dtype, device="cpu")
        view = self._views.get((dtype, shape))
        return self._made(dtype, shape) if view is None else view

    def _made(self, dtype: torch.dtype, shape: tuple[int, ...]) -> torch.Tensor:
        length = math.prod(shape)
        buffer = self._buffers.get(dtype)
        with torch.inference_mode(False):  # else it could only be written in inference mode
            if buffer is None or buffer.numel() < length:
                buffer = self._buffers[dtype] = torch.empty(length, dtype=dtype, device="cpu")
                self._views.clear()  # they would keep the memory of the buffers before
            if len(self._views) == _MOST_VIEWS:
                self._views.clear()
            view = self._views[dtype, shape] = buffer[:length].view(shape)
        return view


SCRATCH = Scratch()
