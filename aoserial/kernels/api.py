"""The functions that use the program's own table of backends."""

from __future__ import annotations

import torch

from aoserial.kernels.registry import BACKENDS, Backends
from aoserial.kernels.spec import DeviceInfo, HasWeight, Weight


def linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None = None,
    *,
    backends: Backends = BACKENDS,
) -> torch.Tensor:
    """`F.linear(x, weight, bias)` by the first backend that takes the weight.

    Args:
        x: [..., K], floating point.
        bias: [N].

    Returns:
        [..., N], in the dtype of `x`.

    Raises:
        UnsupportedOperationError: no backend can honour the weight's settings.
    """
    backend = backends.select(weight.spec, DeviceInfo.of(x.device))
    return backend.linear(x, weight, bias)


def explain(weight: Weight | HasWeight, *, backends: Backends = BACKENDS) -> str:
    """What each backend would do with a weight, a line each: it takes it, or why it does not."""
    return "\n".join(backends.explain(weight))
