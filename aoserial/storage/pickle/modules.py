"""Whole modules in a pickle: what `torch.save(model)` writes of any `torch.nn.Module`. Torch-free.

The classes are gone or unknown, yet what `Module` itself keeps has had the same names since torch
0.1: `_parameters`, `_buffers` and `_modules`, each a dict. So the tensors of a module have the
names that its state dict gave them, whatever its class.
"""

from __future__ import annotations

from aoserial.storage.pickle.values import ObjectValue, Value

_HELD = ("_parameters", "_buffers", "_modules")


def module_members(value: Value) -> list[tuple[Value, Value]] | None:
    """Parameters, persistent buffers and submodules by name, as its state dict orders them.

    Returns:
        None for an object that is no module.
    """
    if type(value) is not ObjectValue:
        return None
    for state in value.states:
        if isinstance(state, dict) and all(isinstance(state.get(name), dict) for name in _HELD):
            parameters, buffers, modules = (state[name] for name in _HELD)
            passing = state.get("_non_persistent_buffers_set")
            kept = buffers.keys() - passing if isinstance(passing, set) else buffers
            persistent = [(name, buffer) for name, buffer in buffers.items() if name in kept]
            return [*parameters.items(), *persistent, *modules.items()]
    return None
