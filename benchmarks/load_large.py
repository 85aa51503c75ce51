"""How long does it take to load 4 GiB and read every byte once, and in how much memory?

Against `safetensors.torch.load_file` of the same file, warm. Memory is anonymous memory of a
process of its own.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import torch
from safetensors.torch import load_file

import aoserial
from benchmarks.measure import anonymous_bytes, compare, extra_memory
from benchmarks.samples import few_large

GIB = 4


def read_all(state: dict[str, torch.Tensor]) -> int:
    """Reads every byte of every plain tensor, of wrappers the parts."""
    total = 0
    for tensor in state.values():
        names = tensor.part_names() if isinstance(tensor, aoserial.VersionedTensor) else ()
        parts = [getattr(tensor, name) for name in names] or [tensor]
        for part in parts:
            total += int(part.view(torch.int8).sum(dtype=torch.int64))
    return total


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.safetensors"
        aoserial.save(few_large(GIB), path, durability="rename")
        compare(
            f"load {GIB} GiB and read every byte / load_file",
            lambda: read_all(aoserial.load(path)),
            lambda: read_all(load_file(path)),
            at_most=1.1,
            runs=5,
        )
        extra_memory("extra anonymous memory", "benchmarks.load_large", path)


def memory(path: str) -> None:
    """Prints how much anonymous memory loading and reading the file adds."""
    import aoserial.checkpoint.loading  # what an import costs is not what loading costs

    torch.ones(1).sum()
    before = anonymous_bytes()
    state = aoserial.load(path)
    read_all(state)
    print(anonymous_bytes() - before)


if __name__ == "__main__":
    memory(sys.argv[1]) if len(sys.argv) > 1 else main()
