"""The functions that use the program's own table of backends."""

from __future__ import annotations

import torch
from torch.compiler import is_compiling

from aoserial.errors import ActivationError
from aoserial.kernels.autocast import as_autocast
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.gradient import eager_layer
from aoserial.kernels.operators import PREPARED, linear_operator
from aoserial.kernels.prepared import Prepared, prepare_weight
from aoserial.kernels.registry import BACKENDS, Backends
from aoserial.kernels.spec import HasWeight, Spec, Weight
from aoserial.kernels.text import spec_text


def linear(
    x: torch.Tensor,
    weight: Weight,
    bias: torch.Tensor | None = None,
    *,
    backend: str | None = None,
    backends: Backends | None = None,
) -> torch.Tensor:
    """`F.linear(x, weight, bias)` by the first backend that takes the weight, packed only once.

    Args:
        x: [..., K], floating point, on the weight's device.
        bias: [N].
        backend: the name of the one to use; the weight is then packed anew.
        backends: another table than the program's own; the same.

    Returns:
        [..., N], in the dtype of `x`, or that of `torch.autocast` where it is on.

    Raises:
        ActivationError: `x` or `bias` does not fit the weight.
        UnsupportedOperationError: no backend can honour the weight's settings.
        PackingError: the backend named cannot take the weight's values.
    """
    check_activation(x, weight.spec, bias, device=weight.parts["qdata"].device)
    if backend is not None or backends is not None:
        ready = prepare_weight(weight, backends or BACKENDS, backend=backend)
    else:
        parts = [weight.parts[name] for name in weight.spec.parts]
        if is_traced(x, *parts):
            y: torch.Tensor = linear_operator(as_autocast(x), parts, spec_text(weight.spec), bias)
            return y
        ready = prepared(weight)
    return eager_layer(ready.run, lambda: weight, x, bias, parts=weight.parts.values())


_ACTIVATIONS = frozenset({torch.bfloat16, torch.float16, torch.float32, torch.float64})
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def is_traced(x: torch.Tensor, *parts: torch.Tensor) -> bool:
    """Whether a layer is to be seen as one operator: by a compiler, or a mode's own tensors."""
    if is_compiling():
        return True
    if type(x) not in _PLAIN:
        return True
    return bool(parts) and any(type(part) not in _PLAIN for part in parts)


def prepared(weight: Weight) -> Prepared:
    """The weight packed for the first backend that takes it, which is done once."""
    return PREPARED.of(spec_text(weight.spec), weight)


def check_activation(
    x: torch.Tensor, spec: Spec, bias: torch.Tensor | None = None, *, device: torch.device
) -> None:
    """Says in one sentence what of an activation or a bias does not fit a weight.

    Raises:
        ActivationError: it does not.
    """
    if x.dtype not in _ACTIVATIONS:
        raise ActivationError(
            f"the activation is {x.dtype}; a layer takes bfloat16, float16, float32 or float64"
        )
    if x.device != device:
        raise ActivationError(f"the activation is on {x.device}, the weight on {device}")
    given, shape = x.shape, spec.shape
    if not given or given[-1] != shape[-1]:
        raise ActivationError(
            f"the activation is {list(given)}, expected [..., {shape[-1]}] for a weight of "
            f"{list(shape)}"
        )
    if bias is not None and bias.shape != shape[-2:-1]:
        raise ActivationError(
            f"the bias is {list(bias.shape)}, expected [{shape[-2]}] for a weight of {list(shape)}"
        )


def explain(
    weight: Weight | HasWeight, *, device: DeviceInfo | None = None, backends: Backends = BACKENDS
) -> str:
    """What each backend would do with a weight, a line each: it takes it, or why it does not.

    Args:
        device: another than the one the weight is on.
    """
    held = weight if isinstance(weight, Weight) else weight.kernel_weight()
    if held is None:
        return "every backend: the type shows no weight to kernels; F.linear dequantizes it"
    where = DeviceInfo.of(held.parts["qdata"].device) if device is None else device
    return "\n".join(backends.explain(held.spec, where))
