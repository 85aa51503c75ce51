"""What `torch.autocast` means for a layer by a quantized weight."""

from __future__ import annotations

import torch

from aoserial.kernels.backend import Run


def as_autocast(x: torch.Tensor) -> torch.Tensor:
    """The activation in the dtype that autocast asks of a layer, itself where it asks nothing.

    As torch does for `F.linear`: other floating-point dtypes are cast, float64 is left.
    """
    if not _is_on(x) or not x.is_floating_point() or x.dtype == torch.float64:
        return x
    return x.to(torch.get_autocast_dtype(x.device.type))


def without_autocast(run: Run, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """`run(x, bias)`, whose own products keep their dtypes.

    A backend has chosen them; autocast would round some, and not those of its other threads.
    """
    if not _is_on(x):
        return run(x, bias)
    with torch.autocast(x.device.type, enabled=False):
        return run(x, bias)


def _is_on(x: torch.Tensor) -> bool:
    if not torch._C._is_any_autocast_enabled():  # a quarter of the time of asking for a device
        return False
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)
