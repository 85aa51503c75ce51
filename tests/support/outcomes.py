"""What aoserial makes of a golden case's file, held bit for bit against what its release had."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import torch

import aoserial
from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.contents import upgrader_for
from aoserial.errors import AoserialError, EraError, OpaqueBytesError
from support.cases import described
from support.tensors import same_bytes

_QUESTIONS = ("int4_cpu_isa", "scale_product_dtype")


@dataclass(kw_only=True)
class Outcome:
    """What became of a file.

    Attributes:
        becomes: type → count of its tensors, `inert` for those that stay so.
        equal: how many tensors were compared and are equal.
        differs: names of those that are not.
        inert: the reasons why tensors are inert.
        unknown: classes of those that are inert because nobody knows them.
        needs: the answers that made a difference, or without which the file is refused.
        failed: the error, where there is one.
    """

    becomes: dict[str, int] = field(default_factory=dict)
    equal: int = 0
    differs: list[str] = field(default_factory=list)
    inert: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    needs: dict[str, str] = field(default_factory=dict)
    failed: str = ""

    @property
    def verdict(self) -> str:
        """The worst of it: `failed`, `differs`, `unknown`, `inert` or `equal`."""
        for name in ("failed", "differs", "unknown", "inert"):
            if getattr(self, name):
                return name
        return "equal"


def answers(case: Path) -> dict[str, str]:
    """What a case's file does not tell, and its name and release do."""
    isa = case.name.rpartition("_")[2]
    minor = int(case.parent.name.split(".")[1])
    return {
        "int4_cpu_isa": isa if isa in ("avx2", "default") else "avx512",
        # releases before 0.18 multiply in the weight's dtype
        "scale_product_dtype": "bfloat16" if minor < 18 else "float32",
    }


def outcome(path: Path) -> Outcome:
    """What becomes of a `model.pt` or `model.safetensors` of a case."""
    found = Outcome()
    try:
        found.needs = _needed(path, answers(path.parent))
        state = aoserial.load(path, strict=False, assume=answers(path.parent))
    except AoserialError as error:
        found.failed = f"{type(error).__name__}: {error}"
        return found
    expected = torch.load(path.parent / "expected.pt", weights_only=True)
    values = {name.replace("/", "."): tensor for name, tensor in expected["dequantized"].items()}
    plain = {name.replace("/", "."): tensor for name, tensor in expected["inner"].items()}
    for name in values.keys() - state.keys():
        found.differs.append(f"{name} is not there")
    placeholders = described(path.parent)["structure_only"]
    becomes: Counter[str] = Counter()
    for name, tensor in state.items():
        becomes[_kind(tensor)] += 1
        if isinstance(tensor, aoserial.InertTensor):
            reason = tensor.reason
            known = not tensor.record.type.startswith("pickle.")
            (found.inert if known else found.unknown).append(
                reason if known else tensor.record.type.removeprefix("pickle.")
            )
        elif (wanted := values.get(name, plain.get(name))) is not None:
            quantized = isinstance(tensor, aoserial.VersionedTensor)
            same = same_bytes(tensor.dequantize() if quantized else tensor, wanted)
            found.equal += same
            if not same or (quantized and placeholders):
                found.differs.append(name)
    found.becomes = dict(sorted(becomes.items()))
    found.inert = sorted(set(found.inert))
    found.unknown = sorted(set(found.unknown))
    return found


def _kind(tensor: object) -> str:
    if isinstance(tensor, aoserial.InertTensor):
        return "inert"
    return type(tensor).__name__


def _needed(path: Path, given: dict[str, str]) -> dict[str, str]:
    """Those of the answers that a file depends on, asked without any."""
    needed: dict[str, str] = {}
    with open_archive(path) as archive:
        groups = archive.catalog.groups
    upgrader = upgrader_for(None)
    for group in groups:
        if group.fault is not None or upgrader.registry.find(group.template.type) is None:
            continue
        try:
            outcome = upgrader.upgrade(group.template)
        except OpaqueBytesError:
            continue
        except EraError as error:
            names = [name for name in _QUESTIONS if f"{name!r}" in str(error)]
        else:
            names = [pair.partition("=")[0] for pair in outcome.assumed]
        needed |= {name: given[name] for name in names}
    return needed
