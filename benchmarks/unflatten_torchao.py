"""How much faster are 4,000 tensors rebuilt than by torchao's own `unflatten_tensor_state_dict`?

Both read the same file that torchao's flatten described. Needs torchao (the `torchao` extra).
"""

from __future__ import annotations

import tempfile
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file

import aoserial
from benchmarks.measure import compare

COUNT = 4_000


def main() -> None:
    if find_spec("torchao") is None:
        print(
            "unflatten of torchao: SKIPPED, torchao is not installed (pip install torchao==0.18.0)"
        )
        return
    from torchao.prototype.safetensors.safetensors_support import (
        flatten_tensor_state_dict,
        unflatten_tensor_state_dict,
    )
    from torchao.quantization import Float8Tensor

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "torchao.safetensors"
        weight = Float8Tensor.from_hp(torch.randn(32, 32, dtype=torch.bfloat16))
        tensors, metadata = flatten_tensor_state_dict(
            {f"l.{i}.weight": weight for i in range(COUNT)}
        )
        save_file(tensors, path, metadata=metadata)

        def theirs() -> object:
            with safe_open(path, "pt") as file:
                plain = {key: file.get_tensor(key) for key in file.keys()}
                return unflatten_tensor_state_dict(plain, file.metadata())

        compare(
            "load 4,000 tensors of torchao's / its own unflatten",
            lambda: aoserial.load(path),
            theirs,
            at_least_faster=20,
            runs=3,
        )


if __name__ == "__main__":
    main()
