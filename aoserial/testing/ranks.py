"""One of the processes of `sharding`: `python -m aoserial.testing.ranks FOLDER RANK WORLD_SIZE`."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import aoserial
from aoserial.tensors import VersionedTensor
from aoserial.tensors.products import asks_of_activation
from aoserial.testing.base import is_sliceable
from aoserial.testing.expectations import expect, expect_equal, expect_same, own, refused
from aoserial.testing.slices import cuts

_TIMEOUT = timedelta(seconds=60)  # of one collective, whose partner may have failed


class Product(nn.Module):
    """x @ w.mT: of a weight, or of each of a stack."""

    def __init__(self, weight: torch.Tensor) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight.mT


def fsdp(tensor: VersionedTensor, mesh: DeviceMesh) -> None:
    """Each rank keeps its rows, or its weights of a stack, and computes with all."""
    tensor = factor(tensor)
    module = Product(tensor.clone())
    if not halves(tensor, 0):
        with refused(why="FSDP sharded what cannot be cut in halves"):
            fully_shard(module, mesh=mesh)
        return
    x = torch.randn(*tensor.shape[:-2], 3, tensor.shape[-1])
    expected = module(x)
    fully_shard(module, mesh=mesh)
    shard = cast(DTensor, module.weight).to_local()
    rank = mesh.get_local_rank()
    expect_same(shard, tensor.chunk(2)[rank].contiguous(), "the shard")
    for turn in ("first", "second"):  # the second gathers into what the first made
        expect_equal(module(x), expected, f"the {turn} forward")
    module.unshard()  # type: ignore[operator]
    whole = own(module.weight)
    expect_equal(whole.dequantize(), tensor.dequantize(), "the weight, gathered")
    module.reshard()  # type: ignore[operator]
    half = Product(tensor.clone())
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
    fully_shard(half, mesh=mesh, mp_policy=policy)
    expect(half(x).dtype == torch.bfloat16, "the precision that was asked for")


def uneven(tensor: VersionedTensor, mesh: DeviceMesh) -> None:
    """Refused by all, or those that are not would wait for the others."""
    tensor = factor(tensor)
    odd = [bound for bound in odd_cuts(tensor) if bound > 1]
    if not odd:
        return  # a tensor of the next granularity has some
    rows = tensor[: odd[-1]].clone()
    x = torch.randn(*rows.shape[:-2], 3, rows.shape[-1])
    module = Product(rows)
    with refused(why="shards of several sizes"):
        fully_shard(module, mesh=mesh)
        module(x)


def dtensor(tensor: VersionedTensor, mesh: DeviceMesh) -> None:
    """Shards along every dimension that can be halved."""
    rank = mesh.get_local_rank()
    for dim in range(tensor.dim()):
        if not halves(tensor, dim):
            continue
        local = tensor.chunk(2, dim)[rank]
        sharded = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False)
        expect(sharded.shape == tensor.shape, f"the whole shape, sharded along {dim}")
        expect_same(sharded.to_local(), local, "to_local()")
        layout = tensor.part_layout()
        if set(layout.axes(0)) - set(layout.axes(dim)):  # DTensor gathers in front, then moves
            with refused(because="as a whole", why="one of the shards' scales was chosen"):
                sharded.full_tensor()
        else:
            whole = own(sharded.full_tensor())
            expect_equal(whole.dequantize(), tensor.dequantize(), f"all gathered along {dim}")
        everywhere = DTensor.from_local(tensor, mesh, [Replicate()], run_check=False)
        again = everywhere.redistribute(placements=[Shard(dim)]).to_local()
        expect_same(again, local.contiguous(), f"the shard along {dim} of a replicated tensor")
        placed = distribute_tensor(tensor, mesh, [Shard(dim)], src_data_rank=None)
        expect_same(placed.to_local(), local.contiguous(), "the shard that distribute_tensor cut")
    with refused(why="distribute_tensor sent a quantized tensor in pieces"):
        distribute_tensor(tensor, mesh, [Shard(0)])


def tensor_parallel(tensor: VersionedTensor, mesh: DeviceMesh) -> None:
    """Columns: each rank has some outputs. Rows: each has some inputs, and sums are added up."""
    if tensor.dim() > 2:
        return  # a stack is no layer's weight
    x = torch.randn(3, tensor.shape[1])
    expected = F.linear(x, tensor)
    rank = mesh.get_local_rank()
    same_x = DTensor.from_local(x, mesh, [Replicate()], run_check=False)
    for dim in (0, 1):
        # a weight that quantizes its activation does so with whole rows of it
        if not halves(tensor, dim) or (dim == 1 and asks_of_activation(tensor)):
            continue
        local = tensor.chunk(2, dim)[rank]
        weight = DTensor.from_local(local, mesh, [Shard(dim)], run_check=False)
        by = same_x.redistribute(placements=[Shard(1)]) if dim == 1 else same_x
        found = cast(DTensor, F.linear(by, weight)).full_tensor()
        # of K products in another order, each within an eps of the sum of their magnitudes
        size = F.linear(x.abs(), tensor.dequantize().abs())
        bound = 2 * tensor.shape[1] * torch.finfo(expected.dtype).eps * size
        expect(bool(((found - expected).abs() <= bound).all()), f"the same output, cut along {dim}")


def checkpoint(tensor: VersionedTensor, folder: Path) -> None:
    """DCP holds plain tensors, written and read by all ranks together."""
    plain, metadata = aoserial.flatten({"weight": tensor})
    dcp.save(dict(plain), checkpoint_id=folder)  # type: ignore[attr-defined]
    room = {name: torch.zeros_like(part) for name, part in plain.items()}
    dcp.load(room, checkpoint_id=folder)  # type: ignore[attr-defined]
    state, leftover = aoserial.unflatten(room, metadata)
    expect(not leftover, "nothing left over")
    expect_same(state["weight"], tensor, "what came back")


def factor(tensor: VersionedTensor) -> VersionedTensor:
    """A weight or a stack of weights, by which one multiplies: the first of a stack of stacks."""
    return tensor if tensor.dim() <= 3 else factor(own(tensor[0].clone()))


def halves(tensor: VersionedTensor, dim: int) -> bool:
    """Whether a tensor can be cut in two of one size."""
    length = tensor.shape[dim]
    return length % 2 == 0 and is_sliceable(tensor) and length // 2 in cuts(tensor, dim)


def odd_cuts(tensor: VersionedTensor) -> list[int]:
    return [bound for bound in cuts(tensor, 0) if bound % 2] if is_sliceable(tensor) else []


def load_module(name: str, file: str | None) -> None:
    """Has a module's classes registered, where it is not importable by running its file."""
    try:
        importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, file or "")
        if spec is None or spec.loader is None:
            raise
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


def main(folder: Path, rank: int, world_size: int) -> None:
    job = json.loads((folder / "job.json").read_text())
    for name, file in job["modules"].items():
        load_module(name, file)
    warnings.simplefilter("ignore", DeprecationWarning)  # torch's own about itself
    dist.init_process_group(
        "gloo",
        init_method=f"file://{folder / 'rendezvous'}",
        rank=rank,
        world_size=world_size,
        timeout=_TIMEOUT,
    )
    mesh = init_device_mesh("cpu", (world_size,))
    tensors = cast(dict[str, VersionedTensor], aoserial.load(folder / "tensors.safetensors"))
    results: dict[str, str] = {}
    steps: dict[str, Callable[[str, VersionedTensor], None]] = {
        "fsdp": lambda _, tensor: fsdp(tensor, mesh),
        "uneven": lambda _, tensor: uneven(tensor, mesh),
        "dtensor": lambda _, tensor: dtensor(tensor, mesh),
        "tensor_parallel": lambda _, tensor: tensor_parallel(tensor, mesh),
        "checkpoint": lambda name, tensor: checkpoint(tensor, folder / "dcp" / name),
    }
    for check, step in steps.items():
        results[check] = "passed"
        for name, tensor in tensors.items():
            torch.manual_seed(0)  # the ranks draw the same numbers
            try:
                step(name, tensor)
            except Exception:  # told by the parent
                results[check] = f"{name}: {traceback.format_exc()}"
                break
        (folder / f"{rank}.json").write_text(json.dumps(results))
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
