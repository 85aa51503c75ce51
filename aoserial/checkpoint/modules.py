"""A checkpoint put into a module: `load_into`."""

from __future__ import annotations

import os
import warnings

import torch
from torch import nn

from aoserial.checkpoint.loading import load
from aoserial.checkpoint.report import AoserialWarning
from aoserial.errors import AoserialError, FieldError, UnknownNameError, locating, raise_all
from aoserial.tensors import CLASSES, InertTensor


def load_into(
    model: nn.Module,
    path: str | os.PathLike[str],
    *,
    strict: bool = True,
    device: str | torch.device | None = None,
) -> None:
    """Replaces the parameters and buffers of `model` by those of a checkpoint.

    The model may be on the meta device: tensors are assigned, not copied into. Parameters that are
    one in the model stay one, also when the file has only one of their names; names that are tied
    in the file become one parameter. Nothing is assigned when something does not fit.

    Args:
        strict: every parameter and persistent buffer must be in the checkpoint, and nothing else.
        device: where the tensors go; the CPU if not given.

    Raises:
        UnknownNameError, FieldError, Faults: names or shapes that do not fit.
        AoserialError: whatever `load` raises.
    """
    with locating(file=os.fspath(path)):
        state = load(path, device if device is not None else "cpu")
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
        if isinstance(place, torch.Tensor) and tuple(place.shape) != tuple(tensor.shape):
            fault = FieldError(
                f"shape is {list(tensor.shape)} in the checkpoint, {list(place.shape)} in the model"
            )
            faults.append(fault.locate(name=name))
    return faults


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
    left = [name for name, buffer in model.named_buffers() if buffer.is_meta]
    if left:
        warnings.warn(
            f"still on the meta device, since no checkpoint holds them: {', '.join(left[:5])}"
            f"{' …' if len(left) > 5 else ''}; initialise these buffers yourself",
            AoserialWarning,
            stacklevel=3,
        )
