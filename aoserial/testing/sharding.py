"""Checks of quantized weights that several processes share: FSDP2, DTensor, distributed checkpoint.

Starting processes takes seconds, so these check all tensors at once, and are a suite of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch

import aoserial
from aoserial.testing.expectations import expect

_WORLD_SIZE = 2
_TIMEOUT_SECONDS = 180  # of all checks; a collective whose partner failed gives up long before


class ShardingConformance:
    """What every quantized tensor class does as a weight that two processes share.

    Derive from it, in a file that pytest collects:

        class TestSharding(aoserial.testing.ShardingConformance):
            def make_all(self):
                return {"int4": Int4Tensor.from_float(torch.randn(8, 64), group_size=32)}

    The processes are real and speak over the loopback interface. They import the modules of the
    tensors' classes, or run their files, to have them registered.
    """

    _reports: ClassVar[dict[str, str] | None] = None

    def make_all(self) -> Mapping[str, torch.Tensor]:
        """Small tensors, [..., N, K], by a name for messages."""
        raise NotImplementedError(f"{type(self).__name__} has to define make_all()")

    def test_fsdp_computes_with_the_weights_it_shards(self) -> None:
        self._expect_passed("fsdp")

    def test_fsdp_refuses_uneven_shards_on_every_rank(self) -> None:
        self._expect_passed("uneven")

    def test_dtensor_holds_gathers_and_redistributes_shards(self) -> None:
        self._expect_passed("dtensor")

    def test_layers_multiply_by_their_shards(self) -> None:
        self._expect_passed("tensor_parallel")

    def test_distributed_checkpoint_saves_and_loads_the_plain_tensors(self) -> None:
        self._expect_passed("checkpoint")

    def _expect_passed(self, check: str) -> None:
        cls = type(self)
        if cls._reports is None:
            cls._reports = run_ranks(self.make_all())
        if check in cls._reports:
            raise AssertionError(f"of {_WORLD_SIZE} processes:\n{cls._reports[check]}")


def run_ranks(tensors: Mapping[str, torch.Tensor]) -> dict[str, str]:
    """Runs all checks in processes of their own.

    Returns:
        The name of each check that failed, with what its process said.
    """
    expect(tensors, "tensors from make_all()")
    modules = {cls.__module__: _file(cls.__module__) for cls in map(type, tensors.values())}
    with TemporaryDirectory() as name:
        folder = Path(name)
        aoserial.save(dict(tensors), folder / "tensors.safetensors", durability="rename")
        (folder / "job.json").write_text(json.dumps({"modules": modules}))
        ranks = [_start(folder, rank) for rank in range(_WORLD_SIZE)]
        _wait(ranks)
        return _collect(folder, ranks)


def _file(module: str) -> str | None:
    return getattr(sys.modules[module], "__file__", None)


def _start(folder: Path, rank: int) -> subprocess.Popen[Any]:
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "OMP_NUM_THREADS": "1",
    }
    command = [sys.executable, "-m", "aoserial.testing.ranks", str(folder), str(rank)]
    with (folder / f"{rank}.log").open("wb") as log:
        return subprocess.Popen(
            [*command, str(_WORLD_SIZE)], stdout=log, stderr=log, env=environment
        )


def _wait(ranks: list[subprocess.Popen[Any]]) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    try:
        for rank in ranks:
            rank.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        pass  # _collect says which checks it did not come to
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def _collect(folder: Path, ranks: list[subprocess.Popen[Any]]) -> dict[str, str]:
    failed: dict[str, list[str]] = {}
    for number, rank in enumerate(ranks):
        log = (folder / f"{number}.log").read_text(errors="replace")
        report = folder / f"{number}.json"
        results: dict[str, str] = json.loads(report.read_text()) if report.exists() else {}
        for check in CHECKS:
            said = results.get(check, f"it did not come so far (exit status {rank.returncode})")
            if said != "passed":
                failed.setdefault(check, []).append(f"rank {number}: {said}\n{log[-2000:]}")
    return {check: "\n".join(said) for check, said in failed.items()}


CHECKS = ("fsdp", "uneven", "dtensor", "tensor_parallel", "checkpoint")
