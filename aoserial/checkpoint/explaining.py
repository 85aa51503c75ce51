"""Which kernel each weight of a checkpoint would run on, from its header alone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.contents import Prepared, prepare, upgrader_for
from aoserial.errors import locating
from aoserial.kernels import BACKENDS, DeviceInfo, HasWeight
from aoserial.record import Record
from aoserial.storage.dtypes import torch_dtype
from aoserial.tensors import builder


@dataclass(frozen=True, kw_only=True, slots=True)
class KernelRow:
    """Weights that are alike to kernels.

    Attributes:
        type: the type id they load as.
        shape: theirs; of a stack, that of its matrices.
        names: which.
        answers: by backend, in the order in which they are asked: None for one that takes them, or
            why it does not. Empty for a type that shows no weight to kernels.
    """

    type: str
    shape: tuple[int, ...]
    names: tuple[str, ...]
    answers: Mapping[str, str | None]

    @property
    def backend(self) -> str | None:
        """The first that takes them."""
        return next((name for name, refusal in self.answers.items() if refusal is None), None)


def explain_kernels(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    assume: Mapping[str, str] | None = None,
) -> list[KernelRow]:
    """What each quantized weight of a checkpoint would run on, and why not on what comes before.

    Weights are not read, so values that a kernel turns down when it packs them are not seen.

    Args:
        device: `cpu` or `cuda` for that of this machine, or a name of `DEVICES`, as `sm90`.
        assume: answers to what a file cannot tell.

    Raises:
        OptionError: no device of that name.
        AoserialError: whatever `open` raises.
    """
    here = device in ("cpu", "cuda")
    info = DeviceInfo.of(torch.device(device)) if here else DeviceInfo.named(device)
    with locating(file=os.fspath(path)), open_archive(path) as file:
        prepared = prepare(file.catalog, upgrader_for(assume))
        return [_row(one, one.outcome.record, info) for one in prepared if one.outcome is not None]


def _row(one: Prepared, record: Record, device: DeviceInfo) -> KernelRow:
    parts = [
        torch.empty(part.shape, dtype=torch_dtype(part.dtype), device="meta")
        for part in record.parts.values()
    ]
    tensor = builder(record)(parts)
    if tensor.dim() > 2:
        tensor = tensor[(0,) * (tensor.dim() - 2)]
    shown = tensor.kernel_weight() if isinstance(tensor, HasWeight) else None
    answers: dict[str, str | None] = {}
    if shown is not None:
        refusals = BACKENDS.refusals(shown.spec, device)
        answers = {backend.name: refusal for backend, refusal in refusals}
    return KernelRow(
        type=record.type,
        shape=tuple(tensor.shape),
        names=tuple(one.group.members),
        answers=answers,
    )
