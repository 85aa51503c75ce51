"""DTensor's collectives over quantized shards: what `full_tensor` and `redistribute` call."""

from __future__ import annotations

import torch

from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.operators import operator
from aoserial.tensors.sharding import all_gather

if torch.distributed.is_available():
    c10d = torch.ops._c10d_functional

    @operator(c10d.all_gather_into_tensor.default)
    def _all_gather(shard: VersionedTensor, group_size: int, group_name: str) -> VersionedTensor:
        return all_gather(
            shard,
            group_size,
            lambda part: c10d.all_gather_into_tensor.default(part, group_size, group_name),
        )

    # the second is how torch 2.13 defers waiting, which for several parts is not worth its while
    @operator(c10d.wait_tensor.default, "_c10d_functional._wrap_tensor_autograd.default")
    def _wait(tensor: VersionedTensor) -> VersionedTensor:
        return tensor._apply_fn_to_data(c10d.wait_tensor.default)
