"""What torchao itself makes of golden cases: run with the Python that has the release to be asked.

    PYTHON_WITH_TORCHAO tests/torchao_files/by_torchao.py FOLDER figures.json

Every module of torchao is imported beforehand, so that all that it allows `weights_only=True` is
allowed: what comes out is the most it can do. A tensor counts as equal when `dequantize()` gives
the bytes that the writing release had; one without such a method, when each plain tensor in it is
what it was.
"""

from __future__ import annotations

import importlib
import json
import pkgutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import torch

# needs no torchao: this file is read by tests, and run where aoserial need not be installed
PLAIN = (torch.Tensor, torch.nn.Parameter)


def import_all() -> str:
    """Imports all of torchao that this machine can, and gives its version."""
    import torchao

    for module in pkgutil.walk_packages(torchao.__path__, "torchao.", onerror=lambda _: None):
        if any(word in module.name for word in ("test", "benchmark", "__main__")):
            continue
        try:
            importlib.import_module(module.name)
        except BaseException:  # modules for other hardware raise anything
            continue
    return torchao.__version__


def leaves(value: object, path: str = "") -> Iterator[tuple[str, torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        yield path, value
        return
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    for key, each in value.items() if isinstance(value, dict) else ():
        yield from leaves(each, f"{path}/{key}" if path else str(key))


def inside(tensor: torch.Tensor, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    if type(tensor) in PLAIN:
        yield path, tensor
        return
    for name, held in vars(tensor).items():
        for deeper, each in leaves(held, f"{path}.{name}"):
            yield from inside(each, deeper)


def same(left: torch.Tensor, right: torch.Tensor) -> bool:
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    flat = (tensor.detach().contiguous().reshape(-1).view(torch.uint8) for tensor in (left, right))
    return torch.equal(*flat)


def held(tensor: torch.Tensor, name: str, expected: dict) -> bool:
    """Whether a tensor stands for what the writing release had."""
    if type(tensor) in PLAIN:
        wanted = expected["dequantized"].get(name, expected["inner"].get(name))
        return wanted is None or same(tensor, wanted)
    for method in ("get_original_weight", "get_plain", "dequantize"):
        own = getattr(type(tensor), method, None)
        if own not in (None, torch.Tensor.dequantize) and name in expected["dequantized"]:
            return same(getattr(tensor, method)(), expected["dequantized"][name])
    return all(
        path not in expected["inner"] or same(each, expected["inner"][path])
        for path, each in inside(tensor, name)
    )


def verdict(path: Path, *, weights_only: bool) -> str:
    """`equal`, `differs`, `not loaded` or `fails when used`."""
    try:
        if path.suffix == ".safetensors":
            state = from_safetensors(path)
        else:
            state = torch.load(path, weights_only=weights_only)
    except Exception:  # whatever it is, the file is not loaded
        return "not loaded"
    expected = torch.load(path.parent / "expected.pt", weights_only=True)
    tensors = dict(leaves(state))
    if not tensors or expected["dequantized"].keys() - tensors.keys():
        return "not loaded"  # or without a word nothing of it
    try:
        good = all(held(tensor, name, expected) for name, tensor in tensors.items())
    except Exception:
        return "fails when used"
    return "equal" if good else "differs"


def from_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors import safe_open
    from torchao.prototype.safetensors.safetensors_support import unflatten_tensor_state_dict

    with safe_open(path, "pt") as file:
        tensors = {key: file.get_tensor(key) for key in file.keys()}
        state, left = unflatten_tensor_state_dict(tensors, file.metadata())
        names = json.loads(file.metadata()["tensor_names"])
    found = {**left, **state}
    return {name: found[name] for name in names}  # a KeyError: it gave nothing under that name


def main(folder: Path, figures: Path) -> None:
    warnings.simplefilter("ignore")
    told: dict[str, object] = {"torchao": import_all(), "torch": torch.__version__}
    files: dict[str, dict[str, str]] = {}
    for path in sorted(folder.glob("torchao-*/*/model.*")):
        name = f"{path.parent.parent.name}/{path.parent.name}/{path.name}"
        modes = (True,) if path.suffix == ".safetensors" else (True, False)
        files[name] = {str(mode): verdict(path, weights_only=mode) for mode in modes}
    figures.write_text(json.dumps(told | {"files": files}, indent=1))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
