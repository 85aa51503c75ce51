"""Gathering the shards of a quantized weight: the hooks of FSDP2, and DTensor's collectives.

Every rank holds a slice of one tensor, cut along a dimension. Each part that follows the dimension
is gathered as bytes; a part that belongs to the tensor as a whole lies on every rank, and each
keeps its own. Blocks stay apart: a scale that the shards shared is gathered once for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import note_write
from aoserial.tensors import geometry

if TYPE_CHECKING:
    from aoserial.tensors.base import VersionedTensor


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """What a gathered tensor is, known before any byte is sent.

    Attributes:
        shape: of the whole.
        join: how shards become it, along their first dimension.
        dtypes: name → dtype, of the parts that are sent, in the order of sending.
    """

    shape: tuple[int, ...]
    join: geometry.Join
    dtypes: dict[str, torch.dtype]


def plan(shard: VersionedTensor, world_size: int) -> Gathered:
    """How shards like this one, one a rank, are put together along their first dimension.

    Raises:
        BlockCutError: a shard that ends inside a block.
        UnsupportedOperationError: its schema does not say how its parts follow its dimensions.
    """
    layout = shard.part_layout()
    followers = layout.axes(0)
    whole = [name for name in layout.parts if name not in followers]
    join = geometry.join([layout] * world_size, 0, whole)
    return Gathered(
        shape=(shard.shape[0] * world_size, *shard.shape[1:]),
        join=join,
        dtypes={name: getattr(shard, name).dtype for name in join.parts},
    )


def sent(shard: VersionedTensor, plan: Gathered) -> list[torch.Tensor]:
    """The bytes of the parts that are gathered, each with the gathered dimension in front.

    Collectives take all bytes, and not all dtypes.
    """
    return [
        getattr(shard, name).movedim(along, 0).contiguous().view(torch.uint8)
        for name, along in plan.join.parts.items()
    ]


def received(
    shard: VersionedTensor,
    plan: Gathered,
    outputs: Sequence[torch.Tensor],
    dtype: torch.dtype | None = None,
) -> VersionedTensor:
    """The whole tensor, its parts views of what was gathered."""
    parts = {name: getattr(shard, name) for name in shard.part_names()}
    for (name, along), output in zip(plan.join.parts.items(), outputs, strict=True):
        parts[name] = output.view(plan.dtypes[name]).movedim(0, along)
    return shard.with_parts(parts, shape=plan.shape, dtype=dtype, attributes=plan.join.attributes)


def before_all_gather(
    shard: VersionedTensor, world_size: int, whole: Sequence[int]
) -> tuple[tuple[torch.Tensor, ...], Gathered]:
    """What FSDP is to gather of a shard of a tensor of shape `whole`, and how to read it.

    Raises:
        BlockCutError, UnsupportedOperationError: as `plan`, and for shards along another dimension
            or of several sizes. The latter is known on every rank alike, so that none waits.
    """
    if whole[0] % world_size or tuple(whole[1:]) != tuple(shard.shape[1:]):
        raise UnsupportedOperationError(
            f"FSDP shards a quantized tensor along its first dimension, into equal shards: "
            f"{list(whole)} over {world_size} ranks gave {list(shard.shape)}"
        )
    gathered = plan(shard, world_size)
    return tuple(sent(shard, gathered)), gathered


def after_all_gather(
    shard: VersionedTensor,
    outputs: Sequence[torch.Tensor],
    gathered: Gathered,
    dtype: torch.dtype,
    out: torch.Tensor | None,
) -> tuple[VersionedTensor, tuple[torch.Tensor, ...]] | None:
    """The whole tensor over what FSDP gathered; or the same in `out`, which mostly is over it."""
    tensor = received(shard, gathered, outputs, dtype)
    if out is None:
        return tensor, ()
    for name in gathered.join.parts:
        target, source = getattr(out, name), getattr(tensor, name)
        if target.data_ptr() != source.data_ptr():
            target.copy_(source)
        note_write(target)  # gathered anew, which no version tells of
    return None


def all_gather(
    shard: VersionedTensor, world_size: int, gather: Callable[[torch.Tensor], torch.Tensor]
) -> VersionedTensor:
    """The whole tensor, by a function that gathers one plain tensor along its first dimension."""
    gathered = plan(shard, world_size)
    return received(shard, gathered, [gather(part) for part in sent(shard, gathered)])
