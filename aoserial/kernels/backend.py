"""What a backend is, and a weight in the form of one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.spec import Spec, Weight

# `F.linear` by a weight that is not among its arguments: x [..., K], bias [N] → [..., N]
Run = Callable[[torch.Tensor, torch.Tensor | None], torch.Tensor]


@dataclass(frozen=True, kw_only=True, slots=True)
class Packed:
    """A weight as a backend's kernel takes it. Made at load and never saved, sharded or sliced.

    Attributes:
        spec: of the weight.
        parts: plain tensors by name; those that are as in the weight share its memory.
        layout: the backend's own name of the form, which tells its kernels apart.
    """

    spec: Spec
    parts: Mapping[str, torch.Tensor]
    layout: str = "canonical"


class Backend(ABC):
    """Something that multiplies by quantized weights.

    Laws:
        * `supports` depends on nothing but its arguments, and looks at no values;
        * what it supports it computes as `reference` does, but for rounding; a setting it cannot
          honour it refuses, with a sentence;
        * `unpack(pack(w))` has the bytes of `w`;
        * `linear` may be called for any shape of `x` whose last dimension is the weight's, on the
          weight's device, for any floating-point dtype;
        * `bind(packed)(x, bias)` is `linear(x, packed, bias)`, for as long as it is held,
          also where the memory of the packed parts has moved, as by `share_memory_`.

    Attributes:
        name: by which it is asked for, and shown.
        devices: the types of the devices it is made for; None for every type.
    """

    name: str
    devices: frozenset[str] | None = None

    @abstractmethod
    def supports(self, spec: Spec, device: DeviceInfo) -> str | None:
        """None, or a sentence on why it does not take such a weight on such a device."""

    def pack(self, weight: Weight, device: DeviceInfo) -> Packed:
        """The weight in the form its kernel takes; the weight as it is, unless overridden.

        Raises:
            PackingError: its values are beyond the kernel.
        """
        del device
        return Packed(spec=weight.spec, parts=dict(weight.parts))

    def unpack(self, packed: Packed) -> Weight:
        """The weight that was packed, of the same bytes.

        Its own parts among the packed ones, unless overridden.
        """
        names = packed.spec.parts
        return Weight(spec=packed.spec, parts={name: packed.parts[name] for name in names})

    def alone(self, packed: Packed) -> Packed:
        """The packed weight without what it keeps of the canonical one beside its own form.

        It may be slower, but `unpack` gives the same bytes. Itself, unless overridden.
        """
        return packed

    @abstractmethod
    def linear(
        self, x: torch.Tensor, packed: Packed, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """`F.linear(x, weight, bias)`: x [..., K], bias [N], result [..., N] in the dtype of x."""

    def bind(self, packed: Packed) -> Run:
        """`linear` by one packed weight, for many calls; overridden to find things out once."""
        return lambda x, bias: self.linear(x, packed, bias)
