"""Goldens recorded: today's code writes a case, once, for all later releases to read."""

from __future__ import annotations

import json
import os
import platform
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors import __version__ as safetensors_version
from safetensors.torch import save_file

from aoserial._version import __version__
from aoserial.checkpoint.saving import save
from aoserial.errors import CollisionError, LimitError, SchemaError
from aoserial.golden.cases import GoldenCase
from aoserial.golden.making import State, made_inputs, make, outputs, settled, values_of
from aoserial.golden.shape import Described, describe, versions_in
from aoserial.golden.store import DESCRIPTION, EXPECTED, FORMAT, Golden, Store, digest
from aoserial.tensors import VersionedTensor

MAX_BYTES = 1 << 20  # of one golden: it is read at each run of the tests and kept for ever


class Written:
    """What today's code writes of a case, in a folder that goes away with the block.

    Attributes:
        models: the files, one for each format.
        described: file name → what is in it.
        versions: the types and versions in them.
    """

    def __init__(self, case: GoldenCase) -> None:
        self.case = case
        self._scratch = tempfile.TemporaryDirectory(prefix="aoserial-golden-")

    def __enter__(self) -> Written:
        try:
            self._write()
        except BaseException:
            self._scratch.cleanup()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._scratch.cleanup()

    @property
    def folder(self) -> Path:
        return Path(self._scratch.name)

    def _write(self) -> None:
        case = self.case
        with settled():
            self._made, self._state = make(case)
        self.models = [self.folder / f"model.{suffix}" for suffix in case.formats]
        for path in self.models:
            save(self._state, path, durability="rename")
        self.described: dict[str, Described] = {path.name: describe(path) for path in self.models}
        self.versions = set(versions_in(self.models[0]))
        if not self.versions:
            raise SchemaError(
                f"golden case {case.name} writes plain tensors only: it guards nothing"
            )

    def record(self, store: Store, writer: str) -> Golden:
        """Puts what was written into the store, with what it stands for.

        Raises:
            CollisionError: that release has recorded the case before.
            LimitError: a golden of more than `MAX_BYTES`.
        """
        golden = store.place(writer, self.case.name)
        if golden.folder.exists():
            raise CollisionError(
                f"{golden} is recorded already and holds other versions or fields; goldens are "
                "never rewritten: raise the project's version, or, if no release has that golden, "
                "take its folder and its lines in MANIFEST.json out"
            )
        save_file(self._expected(), self.folder / EXPECTED)
        told = {
            "golden": FORMAT,
            "case": self.case.name,
            "writer": writer,
            "files": [path.name for path in self.models],
            "versions": sorted(self.versions),
            "environment": environment(),
            "holds": self.described,
        }
        (self.folder / DESCRIPTION).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        size = sum(digest(path)["bytes"] for path in self.folder.iterdir())
        if size > MAX_BYTES:
            raise LimitError(
                f"golden case {self.case.name} takes {size} bytes, and {MAX_BYTES} are allowed: "
                "make its tensors smaller",
                limit="golden",
                allowed=MAX_BYTES,
                found=size,
            )
        golden.folder.mkdir(parents=True)
        for path in self.folder.iterdir():
            shutil.copyfile(path, golden.folder / path.name)  # without the modes of a scratch file
        store.add(golden)
        return golden

    def _expected(self) -> dict[str, torch.Tensor]:
        """`input.0`, `output.0`, `value.m.weight`: plain tensors, none sharing another's bytes."""
        with settled():
            inputs = made_inputs(self.case)
            out = outputs(self.case, self._state, inputs, self._made)
            values = values_by_name(self._state)
        named = {f"input.{i}": tensor for i, tensor in enumerate(inputs)}
        named |= {f"output.{name}": tensor for name, tensor in out.items()}
        named |= {f"value.{name}": tensor for name, tensor in values.items()}
        return {name: tensor.detach().clone().contiguous() for name, tensor in named.items()}


def values_by_name(state: State) -> State:
    """The values of the quantized tensors of a state."""
    return {
        name: values_of(tensor)
        for name, tensor in state.items()
        if isinstance(tensor, VersionedTensor)
    }


def environment() -> dict[str, Any]:
    """What the last bit of an output can depend on."""
    return {
        "aoserial": __version__,
        "torch": torch.__version__,
        "safetensors": safetensors_version,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "system": os.uname().sysname,
    }
