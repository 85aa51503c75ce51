"""What writes some rows of a weight into a float32 buffer, and the one that knows all weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace

import torch

from aoserial.kernels.cpu.scales import of_rows
from aoserial.kernels.reference import dequantize
from aoserial.kernels.spec import Spec, Weight

Parts = Mapping[str, torch.Tensor]


class Decoder(ABC):
    """The decoder of some weights.

    Law: what `decode` writes, times `row_scale` where `pack` gives one, is the weight, but for
    float32's rounding of one product and, where a zero point is added, of one sum.
    """

    @abstractmethod
    def pack(self, weight: Weight) -> Parts | None:
        """What it needs beside the weight's parts; None where it does not take the weight.

        `row_scale`, float32 [N], is left for the output to be multiplied by.
        """

    def columns(self, x: torch.Tensor, spec: Spec) -> torch.Tensor:
        """An activation [M, K], contiguous, with its columns in the order of the decoded ones."""
        del spec
        return x

    def narrows(self, parts: Parts) -> bool:
        """Whether `decode` writes bfloat16 as well, and rounds nothing to it."""
        del parts
        return False

    @abstractmethod
    def decode(self, spec: Spec, parts: Parts, start: int, stop: int, out: torch.Tensor) -> None:
        """Writes the rows from `start` to before `stop`, which are whole blocks.

        Args:
            out: float32 [stop - start, K], contiguous; or bfloat16, if `narrows` says so.
        """


class Rows(Decoder):
    """Takes any weight, by the public arithmetic, in float32 or float64; slow."""

    def pack(self, weight: Weight) -> Parts | None:
        del weight
        return {}

    def decode(self, spec: Spec, parts: Parts, start: int, stop: int, out: torch.Tensor) -> None:
        cut = {name: parts[name] for name in spec.parts}
        cut["qdata"] = parts["qdata"][start:stop]
        for name in {"scale", "zero_point"} & cut.keys():
            cut[name] = of_rows(parts[name], spec, start, stop)
        some = Weight(spec=replace(spec, shape=tuple(out.shape)), parts=cut)
        out.copy_(dequantize(some, out.dtype))
