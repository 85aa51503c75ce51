"""A kernel of torch that multiplies by packed codes, where an activation suits it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch

from aoserial.errors import PackingError
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import activated
from aoserial.kernels.spec import Spec, Weight

# x [..., K], as the layer got it, and the bias [N] → [..., N] in the dtype of x, or None
Attempt = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor | None]


class Kernel(ABC):
    """What it does not take, the stream does.

    Attributes:
        holds_codes: what `pack` gives has the weight's codes in it, for `codes` to give back.
    """

    holds_codes = False

    @abstractmethod
    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        """What it needs beside the weight's parts; None where it does not take the weight."""

    @abstractmethod
    def bind(self, weight: Weight) -> Attempt:
        """`F.linear(x, weight, bias)` as a function of the others; None for an `x` it leaves.

        Args:
            weight: its parts have those that `pack` gave.
        """

    def codes(self, spec: Spec, parts: Parts) -> torch.Tensor:
        """The weight's `qdata`, by what `pack` gave alone."""
        del parts
        raise PackingError(f"{type(self).__name__} holds no codes of {spec.kind}")


class Stream(Kernel):
    """No kernel: the stream does everything."""

    def pack(self, weight: Weight, device: DeviceInfo) -> Parts | None:
        del weight, device
        return {}

    def bind(self, weight: Weight) -> Attempt:
        del weight
        return leave


def leave(x: torch.Tensor, bias: torch.Tensor | None) -> None:
    """The `Attempt` that takes no activation."""
    del x, bias


def rows(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """The activation as it meets the weight, [M, K], contiguous; see `reference.activated`."""
    return in_rows(activated(x, weight)[0])


def in_rows(x: torch.Tensor) -> torch.Tensor:
    """x [..., K] as [M, K], contiguous."""
    if x.dim() != 2:
        x = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    # one without elements is contiguous to torch whatever its strides, but not to its kernels
    return x.contiguous() if x.numel() else x.new_empty(x.shape)


def finished(y: torch.Tensor, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    """Products [M, N] in any floating dtype, and the bias, rounded to the layer's result for x."""
    if bias is not None:
        y = y + bias
    if y.dtype != x.dtype:
        y = y.to(x.dtype)
    return y if x.dim() == 2 else y.view(*x.shape[:-1], y.shape[-1])


def is_symmetric(weight: Weight) -> bool:
    """Whether code 0 stands for 0 everywhere."""
    zero_point = weight.parts.get("zero_point")
    return zero_point is None or not bool(zero_point.any())
