"""A kernel of torch that multiplies by packed codes, where an activation suits it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch

from aoserial.errors import PackingError
from aoserial.kernels.cpu.decoder import Parts
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import activated
from aoserial.kernels.spec import Spec, Weight


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
    def linear(self, x: torch.Tensor, weight: Weight) -> torch.Tensor | None:
        """The product [M, N] in any floating dtype; None where it does not take such an `x`.

        Args:
            x: [..., K], as the layer got it.
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

    def linear(self, x: torch.Tensor, weight: Weight) -> torch.Tensor | None:
        del x, weight
        return None


def rows(x: torch.Tensor, weight: Weight) -> torch.Tensor:
    """The activation as it meets the weight, [M, K], contiguous; see `reference.activated`."""
    met, _ = activated(x, weight)
    if met.dim() != 2:
        met = met.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    # one without elements is contiguous to torch whatever its strides, but not to its kernels
    return met.contiguous() if met.numel() else met.new_empty(met.shape)


def is_symmetric(weight: Weight) -> bool:
    """Whether code 0 stands for 0 everywhere."""
    zero_point = weight.parts.get("zero_point")
    return zero_point is None or not bool(zero_point.any())
