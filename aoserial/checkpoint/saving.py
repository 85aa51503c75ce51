"""A state dict written to a file: `save`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from aoserial.checkpoint.gathering import check_metadata, gather
from aoserial.checkpoint.opening import Checkpoint
from aoserial.checkpoint.splitting import divide, groups_of, is_archive_path, target_of
from aoserial.checkpoint.trees import saved_tree
from aoserial.errors import OptionError, locating
from aoserial.record import Record
from aoserial.record.envelope import WRITER, Contents, lay_out, lay_out_shards, seal
from aoserial.schema import REGISTRY
from aoserial.storage import Durability, Part, ViewPart
from aoserial.storage.collecting import collector_paused
from aoserial.storage.pickle import write_archive
from aoserial.storage.progress import Progress
from aoserial.storage.safetensors import write_safetensors
from aoserial.storage.shards import Resume, Shard, Target, write_set
from aoserial.torchao.support import lay_out_records, sort_state_dict


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
    """Writes a state dict as one file or as a set of shards, atomically.

    A path that ends in .pt, .pth, .bin or .ckpt gets a `torch.save` archive, which plain
    `torch.load(weights_only=True)` opens where aoserial is imported; any other a safetensors file,
    and a folder one or several in Hugging Face's layout (`target_of` has the table).
    An archive may hold more than tensors: dicts and lists, numbers and texts, and whatever inert
    objects `Checkpoint.tree` of another has; an open `Checkpoint` of one is saved with all of that.
    It is written beside `path` and renamed over it, so that a crash at any point leaves the old
    file or the new one. Nothing is written when anything in `state` cannot be.

    Of several shards the index is written last: until then the old set is the checkpoint, and none
    of its files is touched. Each shard describes its own tensors, none is divided between two, and
    names that share a tensor are in its shard. Files that the old index alone named are removed.

    Args:
        state: name → tensor: plain, quantized of a registered type, or inert. An open `Checkpoint`
            also brings its metadata, trail and what its envelope holds beyond our knowledge.
        max_shard_size: bytes of tensors in a file, as `5GB` (10⁹) or a number; a larger tensor gets
            a file of its own.
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
    if layout not in ("aoserial", "torchao"):
        raise OptionError(f"layout={layout!r} is not 'aoserial' or 'torchao'")
    with locating(file=os.fspath(path)):
        target = target_of(path, max_shard_size)
        if target is None and is_archive_path(path):
            if layout == "torchao":
                raise OptionError("torchao's layout is one of safetensors files, not of archives")
            _save_archive(state, path, metadata=metadata, durability=durability, progress=progress)
            return
        if layout == "torchao":
            _save_for_torchao(
                state, path, target, metadata or {}, durability=durability, progress=progress
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
        write_contents(
            contents,
            path if target is None else target,
            durability=durability,
            progress=progress,
            order=state,
        )


def _save_for_torchao(
    state: Mapping[str, Any],
    path: str | os.PathLike[str],
    target: Target | None,
    metadata: Mapping[str, str],
    *,
    durability: Durability,
    progress: Progress | None,
) -> None:
    """Writes what torchao 0.18 reads; of several files, each as if it were alone."""
    plain, records = sort_state_dict(state)
    write_for_torchao(
        path if target is None else target,
        list(state),
        plain,
        records,
        metadata=metadata,
        durability=durability,
        progress=progress,
    )


def write_for_torchao(
    path: str | os.PathLike[str] | Target,
    names: Sequence[str],
    plain: Mapping[str, Part],
    records: Mapping[str, Record],
    *,
    metadata: Mapping[str, str],
    groups: Sequence[Sequence[str]] = (),
    durability: Durability = "fsync",
    progress: Progress | None = None,
    resume: Resume | None = None,
    before_index: Callable[[], object] = lambda: None,
) -> None:
    """Lays plain tensors and records of torchao's types out as torchao 0.18 does, and writes them.

    Args:
        path: of one file, or where a set goes.
        names: of all, in order.
        groups: the names of each shard, where that is settled.
        resume, before_index: of a set, as of `write_set`.
    """
    parts, described = lay_out_records(names, plain, records, for_torchao=True)
    kept = check_metadata(metadata, reserved=described)
    if not isinstance(path, Target):
        write_safetensors(
            path, parts, metadata=kept | described, durability=durability, progress=progress
        )
        return
    sizes = {name: (plain.get(name) or records[name]).nbytes for name in names}
    shards: list[Shard] = []
    for held in groups or groups_of(sizes, path.limit):
        parts, described = lay_out_records(held, plain, records)
        shards.append((parts, kept | described))
    write_set(
        path,
        shards,
        writer=WRITER,
        metadata=kept,
        durability=durability,
        progress=progress,
        resume=resume,
        before_index=before_index,
    )


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
    path: str | os.PathLike[str] | Target,
    *,
    checksums: Mapping[Part, int] | None = None,
    durability: Durability = "fsync",
    progress: Progress | None = None,
    order: Iterable[str] = (),
    groups: Sequence[Sequence[str]] = (),
    resume: Resume | None = None,
    before_index: Callable[[], object] = lambda: None,
) -> None:
    """Lays contents out and writes them, sealed with their checksums and the header's digest.

    Args:
        path: of one file, or where a set goes.
        checksums: CRC-32 of parts that lie in a file, as far as the file says it.
        order: names in the order in which they fill the shards.
        groups: the names of each shard, where that is settled.
        resume, before_index: of a set, as of `write_set`.
    """
    if not isinstance(path, Target):
        sheet = lay_out(contents, REGISTRY)
        write_safetensors(
            path,
            sheet.parts,
            metadata=sheet.metadata,
            checksums=by_name(sheet.parts, checksums or {}),
            finish=seal,
            durability=durability,
            progress=progress,
        )
        return
    sheets = lay_out_shards(contents, divide(contents, path.limit, order, groups), REGISTRY)
    write_set(
        path,
        [(sheet.parts, sheet.metadata) for sheet in sheets],
        writer=WRITER,
        metadata={key: text for key, text in contents.metadata.items() if key != "format"},
        checksums={
            name: crc
            for sheet in sheets
            for name, crc in by_name(sheet.parts, checksums or {}).items()
        },
        finish=seal,
        durability=durability,
        progress=progress,
        resume=resume,
        before_index=before_index,
    )


def by_name(parts: Mapping[str, Part], checksums: Mapping[Part, int]) -> dict[str, int]:
    """The checksums of those parts that are the bytes of one that has one."""
    found = {}
    for name, part in parts.items():
        stored = part.base if isinstance(part, ViewPart) else part
        if stored in checksums:
            found[name] = checksums[stored]
    return found
