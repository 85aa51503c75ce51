"""The main job on real input: a file torchao 0.15 wrote, all the way to a running model; then the
life of a type of one's own over a version bump."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import aoserial
from aoserial.cli import render
from aoserial.errors import MissingFileError

CASE = "torchao-0.15.0/float8wo_v2"
T = TypeVar("T")


def demo() -> bool:
    """Runs the demo; true when every check in it held."""
    with tempfile.TemporaryDirectory(prefix="aoserial-demo-") as folder:
        checks = [_old_file(Path(folder)), _own_type(Path(folder))]
    render.say(
        "All of the above held." if all(checks) else "SOMETHING ABOVE DID NOT HOLD.", bold=True
    )
    return all(checks)


# -- an old file --------------------------------------------------------------------------------


def _old_file(folder: Path) -> bool:
    _heading("1. A checkpoint that torchao 0.15 wrote (torchao is not used here)")
    old = _fixture(CASE)
    summary = _timed("inspect, header only", lambda: aoserial.inspect(old / "model.safetensors"))
    render.summary(summary)

    _heading("2. What bringing it up to date would do")
    plan = aoserial.plan(old / "model.safetensors")
    render.plan(plan)

    _heading("3. Migrate, then look again")
    new = folder / "model.safetensors"
    _timed("migrate", lambda: aoserial.migrate(old / "model.safetensors", new))
    render.summary(aoserial.inspect(new))
    verdict = _timed("verify, every byte", lambda: aoserial.verify(new, deep=True))
    render.verdict(verdict, deep=True)

    _heading("4. Load it into a model that has no memory yet, and run it")
    with torch.device("meta"):
        model = nn.Sequential(nn.Linear(64, 32, dtype=torch.bfloat16))
    _timed("load_into", lambda: aoserial.load_into(model, new))
    weight = model[0].weight
    assert isinstance(weight, aoserial.Float8Tensor)
    render.say(f"  {weight!r}")
    expected = torch.load(old / "expected.pt", weights_only=True)
    x = expected["input"]
    with torch.no_grad():
        aoserial.kernels.prepare(model, backend="reference")  # torchao's own order of operations
        output = model(x)
        aoserial.kernels.restore(model)
        runs_on = aoserial.kernels.prepare(model)
        fast = model(x)
    render.say(f"  packed for {', '.join(set(runs_on.values()))}")
    sizes = F.linear(x.float().abs(), weight.dequantize(torch.float32).abs())
    rounding = (fast.float() - output.float()).abs() <= 4 * torch.finfo(x.dtype).eps * sizes
    return all(
        [
            _check("the dequantized weight equals torchao's, bit for bit",
                   _same(weight.dequantize(), expected["dequantized"]["0.weight"])),
            _check("the model's output equals torchao's, bit for bit",
                   _same(output, expected["output"])),
            _check("this machine's kernel gives the same, but for rounding", bool(rounding.all())),
            _check("the migrated file verifies", bool(verdict)),
        ]
    )  # fmt: skip


# -- a type of one's own ------------------------------------------------------------------------


def _own_type(folder: Path) -> bool:
    _heading("5. A type of your own: acme.Int4Tensor changes what its zero point means")
    path = folder / "acme.safetensors"
    codes = torch.randint(0, 256, (16, 32), dtype=torch.uint8)
    scale, zero_point = torch.rand(16, 1) + 0.5, torch.randint(0, 16, (16, 1)).float()

    first = _acme_v1()(codes, scale, zero_point, shape=(16, 64), dtype=torch.float32)
    before = first.dequantize()
    aoserial.save({"layer.weight": first}, path)
    render.say(
        "  version 1, w = (q - zero_point) * scale, is saved; then its owner moves to version 2,"
    )
    render.say("  w = q * scale + zero, and writes one migration:")
    _acme_v2()
    render.plan(aoserial.plan(path))
    second = aoserial.load(path)["layer.weight"]
    render.say(f"  {second!r}")
    aoserial.migrate(path, folder / "acme-2.safetensors")
    render.summary(aoserial.inspect(folder / "acme-2.safetensors"))
    difference = (second.dequantize() - before).abs().max().item()
    render.say(
        f"  largest difference after the change of formula: {difference:.2e} (float32 rounding)"
    )
    return _check("the old file means what it meant", difference < 1e-5)


def _acme_v1() -> type[aoserial.VersionedTensor]:
    @aoserial.register("acme.Int4Tensor", version=1)
    class Int4Tensor(aoserial.VersionedTensor):
        """Unsigned 4-bit codes, even k in the low nibble: w = (q - zero_point) * scale."""

        __qualname__ = "Int4Tensor"  # the same class in both functions, as its owner edits it
        qdata: torch.Tensor
        scale: torch.Tensor
        zero_point: torch.Tensor

        def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
            codes = _unpack(self.qdata)
            return ((codes - self.zero_point) * self.scale).to(dtype or self.dtype)

    return Int4Tensor


def _acme_v2() -> type[aoserial.VersionedTensor]:
    @aoserial.register("acme.Int4Tensor", version=2)
    class Int4Tensor(aoserial.VersionedTensor):
        """Unsigned 4-bit codes, even k in the low nibble: w = q * scale + zero."""

        __qualname__ = "Int4Tensor"
        qdata: torch.Tensor
        scale: torch.Tensor
        zero: torch.Tensor

        def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
            return (_unpack(self.qdata) * self.scale + self.zero).to(dtype or self.dtype)

    @aoserial.migration("acme.Int4Tensor", 1, 2)
    def zero_point_to_float_domain(record: aoserial.Record) -> aoserial.Record:
        scale, zero_point = record.parts["scale"], record.parts["zero_point"]
        zero = aoserial.compute(
            lambda s, z: -z * s, scale, zero_point, dtype=scale.dtype, shape=scale.shape
        )
        return record.at(2).drop("zero_point").put(zero=zero)

    return Int4Tensor


def _unpack(packed: torch.Tensor) -> torch.Tensor:
    """Codes 0 … 15 as float32 [N, K] of bytes [N, K/2]."""
    return torch.stack([packed & 15, packed >> 4], dim=-1).flatten(-2).float()


# -- saying it ----------------------------------------------------------------------------------


def _fixture(case: str) -> Path:
    """The folder of a golden case: in the package, or beside it in a source tree."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_demo", package.parent / "fixtures"):
        if (folder / case).is_dir():
            return folder / case
    raise MissingFileError(f"the demo's checkpoint, {case}, is not installed")


def _same(left: torch.Tensor, right: torch.Tensor) -> bool:
    return left.dtype == right.dtype and torch.equal(left, right)


def _timed(what: str, work: Callable[[], T]) -> T:
    start = time.perf_counter()
    result = work()
    render.say(f"  [{what}: {1000 * (time.perf_counter() - start):.1f} ms]")
    return result


def _check(claim: str, holds: bool) -> bool:
    render.say(f"  {'ok ' if holds else 'NO '} {claim}", bold=not holds)
    return holds


def _heading(text: str) -> None:
    render.say()
    render.say(text, bold=True)
