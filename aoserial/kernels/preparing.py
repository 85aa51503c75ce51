"""Packing the weights of a model ahead of its first run, and taking that back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from aoserial.kernels.operators import PREPARED
from aoserial.kernels.packed_weight import PackedWeight, packed_weight
from aoserial.kernels.prepared import prepare_weight
from aoserial.kernels.registry import BACKENDS
from aoserial.kernels.spec import HasWeight, Weight
from aoserial.kernels.text import spec_text
from aoserial.storage.progress import Progress

_LOOKED_UP = (nn.Embedding, nn.EmbeddingBag)  # they read rows, so that nothing packed helps them


@dataclass(slots=True)
class _Place:
    """A tensor of a model with all its names, which are those of modules and of theirs."""

    tensor: torch.Tensor
    names: list[str] = field(default_factory=list)
    owners: list[tuple[nn.Module, str]] = field(default_factory=list)

    def is_looked_up(self) -> bool:
        return any(isinstance(module, _LOOKED_UP) for module, _ in self.owners)

    def is_multiplied(self) -> bool:
        return any(not isinstance(module, _LOOKED_UP) for module, _ in self.owners)

    def put(self, tensor: torch.Tensor) -> None:
        """Another tensor under all of the names."""
        parameter = nn.Parameter(tensor, requires_grad=False)
        for module, name in self.owners:
            if name in module._parameters:
                module._parameters[name] = parameter
            else:
                module._buffers[name] = tensor


def prepare(
    model: nn.Module,
    *,
    backend: str | None = None,
    free: bool = False,
    progress: Progress | None = None,
) -> dict[str, str]:
    """Packs every quantized weight of a model that it multiplies by, so that its first run is fast.

    Without it a weight is packed when it is first multiplied by. Weights of embeddings alone are
    left, since rows are read from them as they are. A stack of matrices, [E, N, K], is packed
    matrix by matrix.

    Args:
        backend: the name of the one to use, instead of the first that takes the weight.
        free: puts a `PackedWeight` in the place of each weight whose packed form holds all of it in
            memory of its own, which lets go of the canonical form. Such a model can neither be
            saved nor sharded until `restore`. Weights that are looked up as well, stacks, and those
            whose packed form is no plain tensor, keep theirs.
        progress: told of bytes packed and bytes in all.

    Returns:
        By name, the backend that each weight runs on, with ` (freed)` where it was freed.

    Raises:
        UnsupportedOperationError, PackingError: the backend named does not take a weight.
    """
    places = [place for place in _places(model) if _weights(place.tensor)]
    sizes = [sum(_size_bytes(weight) for _, weight in _weights(each.tensor)) for each in places]
    done, runs_on = 0, {}
    for place, size in zip(places, sizes, strict=True):
        told = _prepare(place, backend, free=free)
        runs_on.update(dict.fromkeys(place.names, told))
        done += size
        if progress is not None:
            progress(done, sum(sizes))
    return runs_on


def restore(model: nn.Module) -> None:
    """Takes back what `prepare` did: every weight is canonical again, of the same bytes."""
    for place in _places(model):
        if isinstance(place.tensor, PackedWeight):
            place.put(place.tensor.unpack())
            continue
        for tensor, weight in _weights(place.tensor):
            PREPARED.drop(weight.parts["qdata"])
            tensor._remembered = None


def _prepare(place: _Place, backend: str | None, *, free: bool) -> str:
    weights = _weights(place.tensor)
    name = ""
    for tensor, weight in weights:
        text = spec_text(weight.spec)
        ready = PREPARED.find(text, weight)
        if ready is None or (backend is not None and ready.backend.name != backend):
            ready = prepare_weight(weight, BACKENDS, backend=backend)
        name = ready.backend.name
        alone = len(weights) == 1 and tensor is place.tensor and not place.is_looked_up()
        lean = ready.backend.alone(ready.packed)
        if free and alone and _holds_all(lean.parts, weight):
            place.put(packed_weight(tensor, weight, ready.backend, lean))
            PREPARED.drop(weight.parts["qdata"])
            return f"{name} (freed)"
        PREPARED.put(text, ready, weight.parts["qdata"])
        tensor._remembered = None
    return name


def _weights(tensor: Any) -> list[tuple[Any, Weight]]:
    """The matrices of a quantized tensor that layers multiply by, with what kernels see of each."""
    if not isinstance(tensor, HasWeight):
        return []
    held: Any = tensor
    matrices = [held] if held.dim() == 2 else held.matrices()
    shown = [(matrix, matrix.kernel_weight()) for matrix in matrices]
    return [(matrix, weight) for matrix, weight in shown if weight is not None]


def _places(model: nn.Module) -> Iterator[_Place]:
    """The parameters and buffers of a model, each once."""
    found: dict[int, _Place] = {}
    for path, module in model.named_modules():
        for held in (module._parameters, module._buffers):
            for name, tensor in held.items():
                if tensor is not None:
                    place = found.setdefault(id(tensor), _Place(tensor))
                    place.names.append(f"{path}.{name}" if path else name)
                    place.owners.append((module, name))
    return (place for place in found.values() if place.is_multiplied())


def _holds_all(parts: Any, weight: Weight) -> bool:
    """Whether a packed form is plain tensors that share no codes with the canonical one."""
    codes = weight.parts["qdata"].untyped_storage().data_ptr()
    plain = all(part.layout == torch.strided for part in parts.values())
    return plain and all(part.untyped_storage().data_ptr() != codes for part in parts.values())


def _size_bytes(weight: Weight) -> int:
    return sum(part.nbytes for part in weight.parts.values())
