"""What the blocks of a page find when they run: names in Python, files in the folder."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "fixtures"


def bare(_: Path) -> dict[str, Any]:
    import torch

    import aoserial

    return {"torch": torch, "aoserial": aoserial}


def own_types(folder: Path) -> dict[str, Any]:
    """What a module that declares types imports."""
    from dataclasses import dataclass
    from enum import Enum

    return {**bare(folder), "dataclass": dataclass, "Enum": Enum}


def readme(folder: Path) -> dict[str, Any]:
    """A checkpoint under the names that the page uses, its model, and other files like it."""
    import torch
    from torch import nn

    import aoserial

    weight = aoserial.Int8Tensor.from_float(torch.randn(8, 16))
    name = "layers.0.mlp.up_proj.weight"
    state = {name: weight}
    aoserial.save(state, folder / "model.safetensors")
    aoserial.save({**state, "tok.weight": weight}, folder / "model.pt")
    (folder / "folder").mkdir()
    aoserial.save(state, folder / "folder/model.safetensors")
    model = nn.Module()
    holder = model
    for part in name.split(".")[:-2]:
        holder.add_module(part, nn.Module())
        holder = getattr(holder, part)
    holder.add_module("up_proj", nn.Linear(16, 8, bias=False, device="meta"))
    return {
        "torch": torch,
        "model": model,
        "w": torch.randn(8, 16),
        "linear": nn.Linear(16, 8),
        "my_files": lambda: [aoserial.flatten(state)],
    }


def sentences(folder: Path) -> dict[str, Any]:
    """Two linear layers as a sentence encoder has them, their file, and one tensor more in it."""
    import torch
    from torch import nn

    import aoserial

    del folder
    source = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 128))
    aoserial.save({**source.state_dict(), "pooler.bias": torch.ones(128)}, "model.safetensors")
    with torch.device("meta"):
        encoder = nn.Sequential(nn.Linear(128, 256), nn.Linear(256, 128))
    return {**bare(Path()), "encoder": encoder, "nn": nn}


def torchao_files(folder: Path) -> None:
    """Two old checkpoints, and a project that has goldens."""
    acme_project(folder)
    shutil.copy(FIXTURES / "torchao-0.15.0/float8wo_v2/model.safetensors", folder)
    shutil.copy(FIXTURES / "torchao-0.7.0/float8da_float8w_perrow/model.pt", folder)


def acme_project(folder: Path) -> None:
    shutil.copytree(ROOT / "examples/acme", folder, dirs_exist_ok=True)


def edited_project(folder: Path) -> None:
    """acme's repository, and in the work tree an edit that changes what absence means."""
    acme_project(folder)
    who = ["-c", "user.name=acme", "-c", "user.email=acme@example.com"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "2.0"]):
        subprocess.run(["git", *who, *command], cwd=folder, check=True)
    path = folder / "acme/__init__.py"
    path.write_text(path.read_text().replace("absent=1.0, default=2.0", "absent=2.0"))


# page → what its Python finds, what its commands find; any other page finds the two imports
PYTHON = {
    "README.md": readme,
    "docs/minilm.md": sentences,
    "docs/own-types.md": own_types,
}
CONSOLE = {
    "README.md": torchao_files,
    "docs/evolving.md": edited_project,
    "docs/goldens.md": acme_project,
    "examples/acme/README.md": acme_project,
}
