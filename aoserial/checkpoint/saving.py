"""A state dict written to a file: `save`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from aoserial.checkpoint.building import Progress
from aoserial.checkpoint.gathering import check_metadata, gather
from aoserial.checkpoint.opening import Checkpoint
from aoserial.checkpoint.trees import saved_tree
from aoserial.errors import (
    OptionError,
    UnsupportedOperationError,
    locating,
)
from aoserial.record.envelope import Contents, lay_out, seal
from aoserial.schema import REGISTRY
from aoserial.storage import Durability
from aoserial.storage.pickle import write_archive
from aoserial.storage.safetensors import write_safetensors
from aoserial.tensors.assembling import collector_paused
from aoserial.torchao.support import lay_out as torchao_lay_out

_ARCHIVES = (".pt", ".pth", ".bin", ".ckpt")


def is_archive_path(path: str | os.PathLike[str]) -> bool:
    """Whether a path of that name gets a `torch.save` archive."""
    return os.fspath(path).endswith(_ARCHIVES)


def save(
    state: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    max_shard_size: str | int | None = None,
    metadata: Mapping[str, str] | None = None,
    durability: Durability = "fsync",
    layout: Literal["aoserial", "torchao"] = "aoserial",
    progress: Progress | None = None,
) -> None:
    """Writes a state dict as one file, atomically.

    A path that ends in .pt, .pth, .bin or .ckpt gets a `torch.save` archive, which plain
    `torch.load(weights_only=True)` opens where aoserial is imported; any other a safetensors file.
    An archive may hold more than tensors: dicts and lists, numbers and texts, and whatever inert
    objects `Checkpoint.tree` of another has; an open `Checkpoint` of one is saved with all of that.
    It is written beside `path` and renamed over it, so that a crash at any point leaves the old
    file or the new one. Nothing is written when anything in `state` cannot be.

    Args:
        state: name → tensor: plain, quantized of a registered type, or inert. An open `Checkpoint`
            also brings its metadata, trail and what its envelope holds beyond our knowledge.
        metadata: strings for the file's metadata, beside aoserial's own.
        layout: whose metadata describes the tensors. `torchao` writes what torchao 0.18 reads,
            without our checksums and digest.
        durability: `rename` survives a crash of the process, `fsync` of the machine;
            `fsync+verify` also reads back what was written.
        progress: called with bytes done and bytes in all.

    Raises:
        UnsupportedTensorError, UnregisteredClassError, TensorNameError, CollisionError, Faults:
            what cannot be written, before a byte is.
        SaveError: writing failed; it keeps the errno and says what is on disk.
    """
    if max_shard_size is not None:
        raise UnsupportedOperationError("max_shard_size is not available: files are not split yet")
    if layout not in ("aoserial", "torchao"):
        raise OptionError(f"layout={layout!r} is not 'aoserial' or 'torchao'")
    with locating(file=os.fspath(path)):
        if is_archive_path(path):
            if layout == "torchao":
                raise OptionError("torchao's layout is one of safetensors files, not of archives")
            _save_archive(state, path, metadata=metadata, durability=durability, progress=progress)
            return
        if layout == "torchao":
            parts, described = torchao_lay_out(state, for_torchao=True)
            kept = check_metadata(metadata or {}, reserved=described)
            write_safetensors(
                path, parts, metadata=kept | described, durability=durability, progress=progress
            )
            return
        with collector_paused():
            contents = gather(state, metadata)
        if isinstance(state, Checkpoint):
            contents = replace(
                contents,
                trail=list(state.catalog.trail),
                extra=state.catalog.extra,
                metadata={**state.catalog.metadata, **contents.metadata},
            )
        write_contents(contents, path, durability=durability, progress=progress)


def _save_archive(
    state: Any,
    path: str | os.PathLike[str],
    *,
    metadata: Mapping[str, str] | None,
    durability: Durability,
    progress: Progress | None,
) -> None:
    """Writes a tree as `torch.save` would, atomically: our tensors by type id and version."""
    if metadata:
        raise OptionError("a torch.save archive has no place for metadata")
    root = state.tree if isinstance(state, Checkpoint) else state
    write_archive(path, saved_tree(root), durability=durability, progress=progress)


def write_contents(
    contents: Contents,
    path: str | os.PathLike[str],
    *,
    durability: Durability = "fsync",
    progress: Progress | None = None,
) -> None:
    """Lays contents out and writes them, sealed with their checksums and the header's digest."""
    sheet = lay_out(contents, REGISTRY)
    write_safetensors(
        path,
        sheet.parts,
        metadata=sheet.metadata,
        finish=seal,
        durability=durability,
        progress=progress,
    )
