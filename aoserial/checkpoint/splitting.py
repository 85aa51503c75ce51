"""How a checkpoint is divided among files, and what a path means for it. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from aoserial.errors import OptionError
from aoserial.record.envelope import Contents
from aoserial.storage.shards import (
    DEFAULT_MAX_SHARD_SIZE,
    DEFAULT_STEM,
    INDEX_SUFFIX,
    SUFFIX,
    Target,
    parse_size,
    split,
)

T = TypeVar("T")

# A path that ends so gets a `torch.save` archive
ARCHIVES = (".pt", ".pth", ".bin", ".ckpt")


def is_archive_path(path: str | os.PathLike[str]) -> bool:
    """Whether a path of that name gets a `torch.save` archive."""
    return os.fspath(path).endswith(ARCHIVES)


def target_of(path: str | os.PathLike[str], max_shard_size: str | int | None) -> Target | None:
    """Where a set goes that is saved to `path`; None when that means one file and no set.

    =================================  =========================================================
    `path`                             what is written
    =================================  =========================================================
    a folder, or ending in a slash     `model.safetensors` in it, or shards and their index
    `x.safetensors`, and a size        `x.safetensors`, or `x-00001-of-00002.safetensors` …
    `x.safetensors.index.json`         the same
    any other name, and a size         a folder of that name, which is made
    any name, and no size              that one file; where it is `x.safetensors` and
                                       `x.safetensors.index.json` is beside it, in place of that set
    =================================  =========================================================

    Args:
        max_shard_size: bytes, or a text as `5GB`, which is also the default in a folder.

    Raises:
        OptionError: a size that is none, or a name whose format is not written in shards.
    """
    text = os.fspath(path)
    limit = None if max_shard_size is None else parse_size(max_shard_size)
    default = parse_size(DEFAULT_MAX_SHARD_SIZE) if limit is None else limit
    if os.path.isdir(text) or text.endswith(("/", os.sep)):
        return Target(folder=text, stem=DEFAULT_STEM, limit=default)
    if text.endswith(INDEX_SUFFIX):
        file = text.removesuffix(INDEX_SUFFIX)
        if not file.endswith(SUFFIX):
            raise OptionError(
                f"shards are safetensors files: name the index *{SUFFIX}{INDEX_SUFFIX}"
            )
        return _beside(file, default)
    if text.endswith(SUFFIX):
        replaces = os.path.exists(text + INDEX_SUFFIX)
        return None if limit is None and not replaces else _beside(text, limit)
    if limit is None:
        return None
    if is_archive_path(text):
        raise OptionError(
            f"max_shard_size goes with safetensors files and folders, not with {_ending(text)}"
        )
    return Target(folder=text, stem=DEFAULT_STEM, limit=limit)


def _beside(file: str, limit: int | None) -> Target:
    folder, name = os.path.split(file)
    return Target(folder=folder or ".", stem=name.removesuffix(SUFFIX), limit=limit)


def _ending(text: str) -> str:
    return os.path.splitext(text)[1]


def groups_of(sizes: Mapping[str, int], limit: int | None) -> list[list[str]]:
    """The names of each file; all in one without a limit."""
    return [list(sizes)] if limit is None else split(sizes, limit)


def divide(
    contents: Contents,
    limit: int | None,
    order: Iterable[str] = (),
    groups: Sequence[Sequence[str]] = (),
) -> list[Contents]:
    """What goes into each file: a tensor whole, and beside it the names that are tied to it.

    Args:
        groups: all names, as they are to be divided; whatever the limit.
        order: names in the order in which they fill the files; those it leaves out come last, as
            `contents` has them.
    """
    sizes = {name: stored.record.nbytes for name, stored in contents.records.items()}
    sizes |= {name: part.nbytes for name, part in contents.plain.items()}
    ordered = {name: sizes[name] for name in order if name in sizes}
    tied: dict[str, list[str]] = {}
    for name, home in contents.ties.items():
        tied.setdefault(home, []).append(name)
    return [
        replace(
            contents,
            records=_only(contents.records, names),
            plain=_only(contents.plain, names),
            ties={name: home for home in names for name in tied.get(home, ())},
        )
        for names in groups or groups_of(ordered | sizes, limit)
    ]


def _only(values: Mapping[str, T], names: Iterable[str]) -> dict[str, T]:
    return {name: values[name] for name in names if name in values}
