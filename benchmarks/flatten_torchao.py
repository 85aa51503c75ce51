"""How long do `flatten_tensor_state_dict` and `unflatten_tensor_state_dict` take for 4,000 tensors,
ours and torchao's own; and how do ours grow to 40,000?

Needs torchao 0.18. Its own unflatten is quadratic, so it is not run on 40,000.
"""

from __future__ import annotations

from importlib.util import find_spec

import torch

import aoserial
from benchmarks.measure import compare, timed


def main() -> None:
    if find_spec("torchao") is None:
        print("flatten and unflatten of torchao: SKIPPED, torchao is not installed")
        return
    from torchao.prototype.safetensors.safetensors_support import (
        flatten_tensor_state_dict,
        unflatten_tensor_state_dict,
    )
    from torchao.quantization import Float8Tensor

    ours = aoserial.torchao
    weight = Float8Tensor.from_hp(torch.randn(32, 32, dtype=torch.bfloat16))
    state = {f"layers.{i}.weight": weight for i in range(4_000)}
    tensors, metadata = flatten_tensor_state_dict(state)
    compare(
        "flatten 4,000 / torchao's",
        lambda: ours.flatten_tensor_state_dict(state),
        lambda: flatten_tensor_state_dict(state),
        at_most=1.0,
        runs=3,
    )
    compare(
        "unflatten 4,000 / torchao's",
        lambda: ours.unflatten_tensor_state_dict(tensors, metadata),
        lambda: unflatten_tensor_state_dict(tensors, metadata),
        at_least_faster=20,
        runs=3,
    )
    large = {f"layers.{i}.weight": weight for i in range(40_000)}
    flat = ours.flatten_tensor_state_dict(large)
    spent = {
        "flatten": (
            timed(lambda: ours.flatten_tensor_state_dict(state)),
            timed(lambda: ours.flatten_tensor_state_dict(large)),
        ),
        "unflatten": (
            timed(lambda: ours.unflatten_tensor_state_dict(tensors, metadata)),
            timed(lambda: ours.unflatten_tensor_state_dict(*flat)),
        ),
    }
    for name, (few, many) in spent.items():
        print(f"  {name}, ours: 4,000 in {few:.3f} s, 40,000 in {many:.3f} s")


if __name__ == "__main__":
    main()
