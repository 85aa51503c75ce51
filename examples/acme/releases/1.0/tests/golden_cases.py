"""What acme promises to read for ever."""

import torch
from acme import Int4Tensor
from torch import nn

from aoserial.golden import golden_case

N, K, GROUP = 4, 32, 8


def weight(**more):
    codes = torch.randint(0, 256, (N, K // 2), dtype=torch.uint8)
    scale = torch.randint(1, 8, (N, K // GROUP)) / 8  # sums of few bits round nowhere
    return Int4Tensor(codes, scale, GROUP, **more, shape=(N, K), dtype=torch.float32)


def small_integers():
    return torch.randint(-4, 5, (2, K)).float()


@golden_case(inputs=small_integers)
def int4_linear():
    layer = nn.Linear(K, N)
    layer.weight = nn.Parameter(weight(), requires_grad=False)
    layer.bias = nn.Parameter(torch.arange(N) / 2, requires_grad=False)
    return layer
