"""State dicts to measure with."""

from __future__ import annotations

import torch

import aoserial


def many_small(count: int) -> dict[str, torch.Tensor]:
    """`count` float8 weights of 32 × 32 under names like a mixture of experts has."""
    codes = torch.randn(32, 32).to(torch.float8_e4m3fn)
    scale = torch.rand(32, 1)
    return {
        f"model.layers.{i // 1000}.mlp.experts.{i % 1000}.up_proj.weight": aoserial.Float8Tensor(
            codes.clone(), scale.clone(), (1, 32), dtype=torch.bfloat16
        )
        for i in range(count)
    }


def few_large(gib: int) -> dict[str, torch.Tensor]:
    """`gib` GiB in int8 weights of 64 MiB, with their scales."""
    state: dict[str, torch.Tensor] = {}
    for i in range(16 * gib):
        codes = torch.randint(-127, 128, (8192, 8192), dtype=torch.int8)
        state[f"layers.{i}.weight"] = aoserial.Int8Tensor(
            codes, torch.rand(8192, 1), (1, 8192), dtype=torch.bfloat16
        )
    return state
