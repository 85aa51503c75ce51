"""Weights packed once: on first use or ahead of it, and again when they have changed since.

That they have is told by torch's count of writes, which `part.data`, memory that is shared with
numpy and other processes' writes pass by; see `docs/kernels.md`.
"""

from __future__ import annotations

from collections.abc import Callable, MutableMapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch.utils.weak import WeakTensorKeyDictionary

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels.backend import Backend, Packed, Run
from aoserial.kernels.device import DeviceInfo
from aoserial.kernels.reference import Reference
from aoserial.kernels.registry import Backends
from aoserial.kernels.spec import Weight


@dataclass(frozen=True, slots=True)
class Seen:
    """A part as it was packed.

    Attributes:
        part: under a name of its own, so that codes nobody else holds are let go.
        form: its dtype and strides, in which another view of the same address may differ.
        writes: how often it had been written to as a part of a wrapper, see `note_write`.
    """

    part: torch.Tensor
    form: tuple[torch.dtype, tuple[int, ...]]
    writes: int

    @classmethod
    def of(cls, part: torch.Tensor) -> Seen:
        return cls(part.detach(), _form(part), _writes(part))


@dataclass(slots=True)
class Prepared:
    """A weight packed for a backend.

    Attributes:
        run: the backend's layer by what is packed.
        seen: what it was packed from, in the order of the spec's parts.
        addresses: of the first element of each.
        version_of: how often torch has seen a part written to; None in inference mode, where it
            does not.
        versions: of each, by that.
        noted: how many writes to wrappers there had been in all when it was last looked at.
    """

    backend: Backend
    packed: Packed
    run: Run
    seen: tuple[Seen, ...]
    addresses: tuple[int, ...]
    version_of: Callable[[torch.Tensor], int | None]
    versions: tuple[int | None, ...]
    noted: int

    def is_of(self, parts: Sequence[torch.Tensor]) -> bool:
        """Whether these parts are what it was packed from, and have not been written to since."""
        version_of = self.version_of
        # as many of each; to have zip see to it takes as long as looking at a part
        for part, address, version in zip(parts, self.addresses, self.versions):  # noqa: B905
            if part.data_ptr() != address or version_of(part) != version:
                return False
        noted = _noted.count  # before it is looked at: another thread may write meanwhile
        if self.noted != noted:
            if any(_writes(seen.part) != seen.writes for seen in self.seen):
                return False
            self.noted = noted
        return True

    def is_seen_so(self, parts: Sequence[torch.Tensor]) -> bool:
        """Whether parts of the same addresses are the same tensors, not others of that memory."""
        return all(_form(part) == seen.form for part, seen in zip(parts, self.seen, strict=True))


def prepare_weight(weight: Weight, backends: Backends, *, backend: str | None = None) -> Prepared:
    """The weight packed by the first backend that takes it, or by the one named.

    Outside of `torch.func`: what is packed would be wrapped, and outlive the transformation.

    Raises:
        UnsupportedOperationError: the weight itself is what `torch.func` transforms by.
    """
    if any(map(torch._C._functorch.is_functorch_wrapped_tensor, weight.parts.values())):
        raise UnsupportedOperationError(
            "torch.func does not go through the parts of a quantized weight, only through the "
            "activation of its layer; use F.linear with the weight's dequantize()"
        )
    with temporarily_clear_interpreter_stack():
        return _prepared(weight, backends, backend)


def _prepared(weight: Weight, backends: Backends, backend: str | None) -> Prepared:
    parts = [weight.parts[name] for name in weight.spec.parts]
    chosen, packed = backends.pack(weight, DeviceInfo.of(parts[0].device), only=backend)
    version_of = _version_if_counted if any(p.is_inference() for p in parts) else _version
    return Prepared(
        backend=chosen,
        packed=packed,
        run=chosen.bind(packed),
        seen=tuple(map(Seen.of, parts)),
        addresses=tuple(part.data_ptr() for part in parts),
        version_of=version_of,
        versions=tuple(map(version_of, parts)),
        noted=_noted.count,
    )


class PreparedWeights:
    """What is packed of the weights that are alive, by their codes.

    Codes made in inference mode keep no count of writes, so what is packed of them could grow
    stale: unless asked for by `put`, they go to the reference backend, which packs nothing.
    """

    def __init__(self, backends: Backends) -> None:
        self.backends = backends
        self._held: MutableMapping[torch.Tensor, dict[str, Prepared]] = WeakTensorKeyDictionary()

    def of(self, text: str, weight: Weight) -> Prepared:
        """The weight packed, now if it has not been.

        Args:
            text: the weight's spec, by `spec_text`.
        """
        found = self.find(text, weight)
        if found is not None:
            return found
        codes, *others = (weight.parts[name] for name in weight.spec.parts)
        if any(part.is_inference() for part in (codes, *others)):
            self.backends.warn_once(
                f"{weight.spec.kind} runs on the slow reference kernel: tensors made in inference "
                f"mode keep no count of writes, so what is packed of them could grow stale. Load "
                f"outside of it, or call aoserial.kernels.prepare(model)"
            )
            return prepare_weight(weight, self.backends, backend=Reference.name)
        return self.put(text, prepare_weight(weight, self.backends), codes)

    def find(self, text: str, weight: Weight) -> Prepared | None:
        """What is packed of the weight as it is now."""
        parts = [weight.parts[name] for name in weight.spec.parts]
        found = self._held.get(parts[0], {}).get(text)
        if found is None or not found.is_of(parts) or not found.is_seen_so(parts):
            return None
        return found

    def put(self, text: str, prepared: Prepared, codes: torch.Tensor) -> Prepared:
        """Keeps what is packed of these codes, for as long as they live."""
        self._held.setdefault(codes, {})[text] = prepared
        return prepared

    def drop(self, codes: torch.Tensor) -> None:
        """Lets go what is packed of these codes."""
        self._held.pop(codes, None)


_version: Callable[[torch.Tensor], int] = attrgetter("_version")  # of C alone


def _version_if_counted(part: torch.Tensor) -> int | None:
    return None if part.is_inference() else part._version


def _form(part: torch.Tensor) -> tuple[torch.dtype, tuple[int, ...]]:
    return part.dtype, part.stride()


class _Noted:
    """How many writes have been noted in all."""

    count = 0


_noted = _Noted()


def note_write(part: torch.Tensor) -> None:
    """Counts a write to a part of a tensor subclass, which torch does not.

    The versions of tensors go up above `__torch_dispatch__`, where the wrapper is written to and
    not its parts; so the storage counts, which views share.
    """
    storage: Any = part.untyped_storage()
    storage.aoserial_writes = _writes(part) + 1
    _noted.count += 1


def _writes(part: torch.Tensor) -> int:
    """How many writes to a tensor's storage have been noted."""
    return getattr(part.untyped_storage(), "aoserial_writes", 0)
