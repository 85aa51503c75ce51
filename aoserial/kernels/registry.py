"""The backends in the order in which they are asked, and the choice among them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib import metadata

from aoserial.errors import PackingError, UnsupportedOperationError
from aoserial.kernels.backend import Backend, Packed
from aoserial.kernels.cpu import Cpu
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import Reference
from aoserial.kernels.spec import Spec, Weight
from aoserial.kernels.torch_cuda import TorchCuda
from aoserial.kernels.triton import Triton

ENTRY_POINTS = "aoserial.kernels"  # each gives a backend, or a class or function that makes one


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
        self._find_plugins()
        return ((backend, _answer(backend, spec, device)) for backend in self.backends)

    def pack(
        self, weight: Weight, device: DeviceInfo, *, only: str | None = None
    ) -> tuple[Backend, Packed]:
        """The weight packed by the first backend that takes it, or by the one named.

        Warns once a kind when that is the slow one, and another is made for such a device.

        Raises:
            UnsupportedOperationError: none takes it, or the one named does not.
            PackingError: the one named does not take its values.
        """
        answers: list[str] = []
        passed_over = False  # a faster one that is made for such a device
        for backend, refusal in self.refusals(weight.spec, device):
            if only is not None and backend.name != only:
                continue
            if refusal is not None:
                answers.append(f"{backend.name}: {refusal}")
                passed_over |= _is_made_for(backend, device)
                continue
            try:
                packed = backend.pack(weight, device)
            except PackingError as error:
                if only is not None:
                    raise
                answers.append(f"{backend.name}: {error}")
                passed_over = True
                continue
            if passed_over and isinstance(backend, Reference) and device.type != "meta":
                slow = f"{weight.spec.kind} runs on the slow reference kernel"
                self.warn_once(f"{slow}. {'; '.join(answers)}", weight.spec.kind)
            return backend, packed
        raise UnsupportedOperationError(self._nobody(only, answers))

    def named(self, name: str) -> Backend:
        """The backend of that name.

        Raises:
            UnsupportedOperationError: there is none.
        """
        self._find_plugins()
        for backend in self.backends:
            if backend.name == name:
                return backend
        raise UnsupportedOperationError(self._nobody(name, []))

    def explain(self, spec: Spec, device: DeviceInfo) -> list[str]:
        """A line a backend: what it would do with such a weight, and where not, why not."""
        answers = self.refusals(spec, device)
        return [f"{backend.name}: {refusal or 'takes it'}" for backend, refusal in answers]

    def _find_plugins(self) -> None:
        if self.plugins:
            self.plugins = False
            for entry_point in metadata.entry_points(group=ENTRY_POINTS):
                plugin = entry_point.load()
                self.add(plugin() if callable(plugin) else plugin)

    def _nobody(self, only: str | None, answers: list[str]) -> str:
        if only is None:
            return f"no kernel takes this weight. {'; '.join(answers)}"
        if answers:
            return f"the kernel asked for does not take this weight. {answers[0]}"
        there = ", ".join(backend.name for backend in self.backends)
        return f"there is no kernel backend {only!r}; there are {there}"

    def warn_once(self, sentence: str, about: str | None = None) -> None:
        """Warns, unless it has warned of this, or about the same."""
        if (about or sentence) not in self._warned:
            self._warned.add(about or sentence)
            warnings.warn(sentence, stacklevel=2)


def _is_made_for(backend: Backend, device: DeviceInfo) -> bool:
    return backend.devices is None or device.type in backend.devices


def _answer(backend: Backend, spec: Spec, device: DeviceInfo) -> str | None:
    if not _is_made_for(backend, device):
        return f"is not for {device.type} devices"
    return backend.supports(spec, device)


BACKENDS = Backends([TorchCuda(), Triton(), Cpu(), Reference()], plugins=True)
