"""State dicts to and from plain tensors and metadata, for those who do their own I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from aoserial.checkpoint.archives.safetensors import catalog_of
from aoserial.checkpoint.contents import prepare, upgrader_for
from aoserial.checkpoint.gathering import gather
from aoserial.record.envelope import lay_out
from aoserial.schema import REGISTRY
from aoserial.storage.collecting import collector_paused
from aoserial.tensors import Loaded
from aoserial.tensors.assembling import assemble, entries_of, tensor_of


def flatten(state: Mapping[str, Any]) -> tuple[dict[str, torch.Tensor], dict[str, str]]:
    """A state dict as plain tensors and metadata, as `safetensors.torch.save_file` takes them.

    Nothing is copied: the tensors are the state dict's own. Who saves them must keep every tensor
    under its key. The metadata carries no digests, since it cannot know the bytes of the file.

    Returns:
        key → plain tensor, and the metadata with aoserial's envelope.

    Raises:
        AoserialError: whatever `save` raises before it writes.
    """
    sheet = lay_out(gather(state), REGISTRY, sealed=False)
    return {key: tensor_of(part) for key, part in sheet.parts.items()}, sheet.metadata


def unflatten(
    plain_tensors: Mapping[str, torch.Tensor], metadata: Mapping[str, str]
) -> tuple[dict[str, Loaded], dict[str, torch.Tensor]]:
    """The inverse of `flatten`, and of torchao's, on all tensors of a checkpoint or on one shard's.

    Returns:
        The state dict of what is complete, and the tensors of records that are not: merge these
        into the next shard's and call again.

    Raises:
        AoserialError: metadata that does not describe the tensors; types that cannot be resolved.
    """
    catalog = catalog_of(metadata, entries_of(plain_tensors), partial=True)
    state: dict[str, Loaded] = {}
    used = set(catalog.plain.values())
    with collector_paused():
        for one in prepare(catalog, upgrader_for(None)):
            state.update(assemble(one.group, one.outcome, plain_tensors, reason=one.reason))
            used.update(key for keys in one.group.members.values() for key in keys)
    for name, key in catalog.plain.items():
        state[name] = plain_tensors[key]
    for name, target in catalog.ties.items():
        if target in state:
            state[name] = state[target]
    leftover = {key: tensor for key, tensor in plain_tensors.items() if key not in used}
    return state, leftover
