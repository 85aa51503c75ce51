"""A state dict written to a file: `save`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Literal

from aoserial.checkpoint.gathering import check_metadata, gather
from aoserial.checkpoint.opening import Checkpoint
from aoserial.errors import OptionError, UnsupportedOperationError, locating
from aoserial.record.envelope import Contents, lay_out, seal
from aoserial.schema import REGISTRY
from aoserial.storage.safetensors import write_safetensors
from aoserial.tensors.assembling import collector_paused
from aoserial.torchao.support import lay_out as torchao_lay_out

Durability = Literal["rename", "fsync", "fsync+verify"]
_OTHER_FORMATS = (".pt", ".pth", ".bin", ".ckpt")


def save(
    state: Mapping[str, Any],
    path: str | os.PathLike[str],
    *,
    max_shard_size: str | int | None = None,
    metadata: Mapping[str, str] | None = None,
    durability: Durability = "fsync",
    layout: Literal["aoserial", "torchao"] = "aoserial",
    progress: Callable[[int, int], None] | None = None,
) -> None:
    """Writes a state dict as one safetensors file, atomically.

    The file is written beside `path` and renamed over it, so that a crash at any point leaves the
    old file or the new one. Nothing is written when anything in `state` cannot be.

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
    if os.fspath(path).endswith(_OTHER_FORMATS):
        raise UnsupportedOperationError(
            f"{os.path.basename(path)} asks for a torch.save archive, which is not written yet; "
            f"use a .safetensors path"
        )
    with locating(file=os.fspath(path)):
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


def write_contents(
    contents: Contents,
    path: str | os.PathLike[str],
    *,
    durability: Durability = "fsync",
    progress: Callable[[int, int], None] | None = None,
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
