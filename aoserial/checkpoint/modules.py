"""A checkpoint put into a module: `load_into`."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping

import torch
from torch import nn

from aoserial.checkpoint.loading import load
from aoserial.checkpoint.renaming import Rename
from aoserial.checkpoint.report import AoserialWarning
from aoserial.errors import AoserialError, FieldError, UnknownNameError, locating, raise_all
from aoserial.tensors import CLASSES, InertTensor


def load_into(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    device: str | torch.device | None = None,
    names: Iterable[str] | None = None,
    rename: Rename | None = None,
    assume: Mapping[str, str] | None = None,
) -> None:
    """Replaces the parameters and buffers of `model` by those of a checkpoint.

    The model may be on the meta device: tensors are assigned, not copied into. Parameters that are
    one in the model stay one, also when the file has only one of their names; names that are tied
    in the file become one parameter. Nothing is assigned when something does not fit.

    Args:
        strict: every parameter and persistent buffer must be in the checkpoint, and nothing else.
        device: where the tensors go; the CPU if not given.
        names, rename, assume: as `load` has them. `names=model.state_dict()` takes of a checkpoint
            what the model has, and still needs all of it.

    Raises:
        UnknownNameError, FieldError, Faults: names, shapes or kinds of dtype that do not fit.
        AoserialError: whatever `load` raises.
    """
    with locating(file=os.fspath(path)):
        state = load(
            path,
            device if device is not None else "cpu",
            names=names,
            rename=rename,
            assume=assume,
        )
        wanted = dict(model.named_parameters(remove_duplicate=False))
        _add_twins(state, wanted)
        expected = model.state_dict()
        faults = _mismatches(state, expected, strict)
        raise_all(f"the checkpoint does not fit the model in {len(faults)} places", faults)
        model.load_state_dict(_as_parameters(state, wanted), strict=strict, assign=True)
    for parameter in model.parameters():
        if type(parameter) in CLASSES:
            parameter.requires_grad_(False)  # codes have no gradient; assigning copies the flag
    _warn_of_meta(model)


def _add_twins(
    state: dict[str, torch.Tensor | InertTensor], wanted: dict[str, nn.Parameter]
) -> None:
    """Gives names that the file lacks the tensor of a name that is the same parameter."""
    known = {id(wanted[name]): name for name in state if name in wanted}
    for name, parameter in wanted.items():
        if name not in state and id(parameter) in known:
            state[name] = state[known[id(parameter)]]


def _mismatches(
    state: dict[str, torch.Tensor | InertTensor], expected: dict[str, object], strict: bool
) -> list[AoserialError]:
    faults: list[AoserialError] = []
    if strict:
        faults += [
            UnknownNameError("the model has it, the checkpoint does not").locate(name=name)
            for name in expected
            if name not in state
        ]
        faults += [
            UnknownNameError("the checkpoint has it, the model does not").locate(name=name)
            for name in state
            if name not in expected
        ]
    for name, tensor in state.items():
        place = expected.get(name)
        if isinstance(place, torch.Tensor) and (told := _misfit(tensor, place)):
            faults.append(FieldError(told).locate(name=name))
    return faults


def _misfit(tensor: torch.Tensor | InertTensor, place: torch.Tensor) -> str | None:
    """Why a tensor cannot stand where the model has `place`, or None.

    Another precision is the checkpoint's to choose; integers for real numbers are a mistake.
    """
    if tuple(place.shape) != tuple(tensor.shape):
        return f"shape is {list(tensor.shape)} in the checkpoint, {list(place.shape)} in the model"
    if isinstance(tensor, torch.Tensor) and _kind(tensor.dtype) != _kind(place.dtype):
        return f"dtype is {tensor.dtype} in the checkpoint, {place.dtype} in the model"
    return None


def _kind(dtype: torch.dtype) -> tuple[bool, bool]:
    return dtype.is_floating_point, dtype.is_complex


def _as_parameters(
    state: dict[str, torch.Tensor | InertTensor], wanted: dict[str, nn.Parameter]
) -> dict[str, object]:
    """Tensors for parameters as one Parameter a tensor, so that assigning keeps ties."""
    made: dict[int, nn.Parameter] = {}
    ready: dict[str, object] = {}
    for name, tensor in state.items():
        if name not in wanted or not isinstance(tensor, torch.Tensor):
            ready[name] = tensor
            continue
        if id(tensor) not in made:
            floating = tensor.is_floating_point() or tensor.is_complex()
            trainable = wanted[name].requires_grad and floating
            made[id(tensor)] = nn.Parameter(tensor, requires_grad=trainable)
        ready[name] = made[id(tensor)]
    return ready


def _warn_of_meta(model: nn.Module) -> None:
    held = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    left = [name for name, tensor in held.items() if tensor.is_meta]
    if left:
        warnings.warn(
            f"still on the meta device, since the checkpoint does not hold them: "
            f"{', '.join(left[:5])}{' …' if len(left) > 5 else ''}; initialise them yourself",
            AoserialWarning,
            stacklevel=3,
        )
