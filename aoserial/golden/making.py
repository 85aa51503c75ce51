"""What a case makes with today's code: a state, its values, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from aoserial.errors import SchemaError
from aoserial.golden.cases import GoldenCase
from aoserial.tensors import VersionedTensor

State = dict[str, torch.Tensor]


@contextmanager
def settled() -> Iterator[None]:
    """One seed and one thread, so that a run can be had again; both are put back."""
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        torch.set_num_threads(1)
        try:
            yield
        finally:
            torch.set_num_threads(threads)


def make(case: GoldenCase) -> tuple[Any, State]:
    """What the case's function gives, and the state in it.

    Raises:
        SchemaError: it gives neither a module nor tensors by name.
    """
    made = case.make()
    if isinstance(made, nn.Module):
        return made, dict(made.eval().state_dict())
    if isinstance(made, Mapping) and made and all(isinstance(v, torch.Tensor) for v in
                                                  made.values()):  # fmt: skip
        return made, dict(made)
    raise SchemaError(
        f"golden case {case.name} gives {type(made).__name__}, expected a module, or a dict of "
        "tensors by name"
    )


def made_inputs(case: GoldenCase) -> list[torch.Tensor]:
    """The inputs of a case; none when it is not run."""
    if case.inputs is None:
        return []
    given = case.inputs()
    tensors = [given] if isinstance(given, torch.Tensor) else list(given)
    if not all(type(tensor) is torch.Tensor for tensor in tensors):
        raise SchemaError(f"the inputs of golden case {case.name} are not all plain tensors")
    return tensors


def outputs(
    case: GoldenCase, state: State, inputs: list[torch.Tensor], made: Any = None
) -> dict[str, torch.Tensor]:
    """What comes out of a state for the inputs, by name.

    Args:
        made: a module to load the state into; what `case.make` gives, if None.

    Raises:
        SchemaError: a dict of tensors, and nothing says how to run it; outputs that are no tensors.
    """
    if not inputs:
        return {}
    target: Any = state
    if made is None and not case.retired:
        made, _ = make(case)
    if isinstance(made, nn.Module):
        made.load_state_dict(state, assign=True)
        target = made.eval()
    if case.run is not None:
        out = case.run(target, *inputs)
    elif isinstance(target, nn.Module):
        out = target(*inputs)
    else:
        raise SchemaError(f"golden case {case.name} has inputs and is no module: say run=")
    named = _named(out)
    if not all(isinstance(tensor, torch.Tensor) for tensor in named.values()):
        raise SchemaError(f"the outputs of golden case {case.name} are not all tensors")
    return {name: values_of(tensor) for name, tensor in named.items()}


def _named(out: Any) -> dict[str, Any]:
    if isinstance(out, Mapping):
        return {str(name): tensor for name, tensor in out.items()}
    return {str(i): each for i, each in enumerate(out if isinstance(out, tuple) else (out,))}


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The plain values that a tensor stands for."""
    plain = tensor.dequantize() if isinstance(tensor, VersionedTensor) else tensor
    return plain.detach().contiguous()
