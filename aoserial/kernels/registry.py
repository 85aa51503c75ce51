"""The backends in the order in which they are asked, and the choice among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata
from typing import Protocol

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels.reference import Reference
from aoserial.kernels.spec import DeviceInfo, HasWeight, Spec, Weight

ENTRY_POINTS = "aoserial.kernels"  # each gives a backend, or a class or function that makes one


class Backend(Protocol):
    """Something that multiplies by quantized weights.

    Laws:
        * `supports` depends on nothing but its arguments and what is installed;
        * what it supports it computes as `reference` does, but for rounding; a setting it cannot
          honour it refuses, with a sentence.
    """

    @property
    def name(self) -> str: ...
    def supports(self, spec: Spec, device: DeviceInfo) -> str | None: ...
    def linear(
        self, x: torch.Tensor, weight: Weight, bias: torch.Tensor | None = None
    ) -> torch.Tensor: ...


@dataclass
class Backends:
    """An ordered table of backends; plug-ins come before those that ship, and are found once."""

    backends: list[Backend] = field(default_factory=lambda: [Reference()])
    plugins: bool = False
    _warned: set[str] = field(default_factory=set)

    def add(self, backend: Backend) -> None:
        """Puts a backend in front; one of the same name gives way."""
        self.backends = [backend, *(held for held in self.backends if held.name != backend.name)]

    def refusals(self, spec: Spec, device: DeviceInfo) -> Iterator[tuple[Backend, str | None]]:
        """Each backend with its answer."""
        if self.plugins:
            self.plugins = False
            for entry_point in metadata.entry_points(group=ENTRY_POINTS):
                plugin = entry_point.load()
                self.add(plugin() if callable(plugin) else plugin)
        return ((backend, backend.supports(spec, device)) for backend in self.backends)

    def select(self, spec: Spec, device: DeviceInfo) -> Backend:
        """The first backend that takes the weight; warns once a kind when that is the slow one."""
        answers: list[str] = []
        for backend, refusal in self.refusals(spec, device):
            if refusal is None:
                if isinstance(backend, Reference) and answers and spec.kind not in self._warned:
                    self._warned.add(spec.kind)
                    slow = f"{spec.kind} runs on the slow reference kernel"
                    warnings.warn(f"{slow}. {'; '.join(answers)}", stacklevel=2)
                return backend
            answers.append(f"{backend.name}: {refusal}")
        raise UnsupportedOperationError(f"no kernel takes this weight. {'; '.join(answers)}")

    def explain(self, weight: Weight | HasWeight) -> list[str]:
        """A line a backend: what it would do with the weight, and where not, why not."""
        held = weight if isinstance(weight, Weight) else weight.kernel_weight()
        if held is None:
            return ["every backend: the type shows no weight to kernels; F.linear dequantizes it"]
        answers = self.refusals(held.spec, DeviceInfo.of(held.parts["qdata"].device))
        return [f"{backend.name}: {refusal or 'takes it'}" for backend, refusal in answers]


BACKENDS = Backends(plugins=True)
