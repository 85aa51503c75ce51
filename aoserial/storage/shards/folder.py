"""Which file of a folder is the checkpoint. Torch-free.

An index is, if there is one: it is written last, so what it names is whole. Otherwise the one file
that is a checkpoint by its first bytes is. Where several could be meant, none is taken.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator

from aoserial.errors import AmbiguousFolderError, MissingFileError, PathError
from aoserial.storage.safetensors.grammar import quoted
from aoserial.storage.shards.names import DEFAULT_STEM, INDEX_SUFFIX, SUFFIX, ShardName
from aoserial.storage.sniff import SNIFF_BYTES, is_pickle, is_safetensors
from aoserial.storage.source import Source

# Where a folder has the same weights in two formats, as repositories of models often do
_PREFERRED = f"{DEFAULT_STEM}{SUFFIX}{INDEX_SUFFIX}"

# Pickles that trainers leave beside a model's
_BESIDE = ("training_args", "optimizer", "scheduler", "scaler", "rng_state")

_SHOWN = 8


def find_checkpoint(folder: str) -> str:
    """The path of the index or of the one checkpoint in a folder.

    Safetensors files come before pickles, and `model.safetensors.index.json` before other indexes.

    Raises:
        MissingFileError: there is none.
        AmbiguousFolderError: there are several; it names them.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise PathError(f"cannot be listed: {error.strerror}", errno=error.errno) from None
    indexes = [name for name in names if name.endswith(INDEX_SUFFIX) and name[0] != "."]
    if _PREFERRED in indexes:
        return os.path.join(folder, _PREFERRED)
    if not indexes:
        return os.path.join(folder, _only(_candidates(folder, names)))
    if len(indexes) > 1:
        raise _ambiguous("several indexes", indexes)
    return os.path.join(folder, indexes[0])


def _only(tiers: list[list[str]]) -> str:
    found = next((tier for tier in tiers if tier), [])
    if not found:
        raise MissingFileError("the folder holds no checkpoint", errno=errno.ENOENT)
    if len(found) > 1:
        if all(ShardName.parse(name) for name in found):
            raise _ambiguous("shards without their index", found)
        raise _ambiguous("several checkpoints and no index", found)
    part = ShardName.parse(found[0])
    if part is not None and part.count > 1:
        raise _ambiguous(f"one shard of {part.count} and no index", found)
    return found[0]


def _candidates(folder: str, names: list[str]) -> list[list[str]]:
    """Files that are checkpoints by their first bytes, the likelier first."""
    tensors: list[str] = []
    models: list[str] = []
    others: list[str] = []
    for name, head in _heads(folder, names):
        if is_safetensors(head):
            tensors.append(name)
        elif is_pickle(head):
            (others if name.startswith(_BESIDE) else models).append(name)
    return [tensors, models, others]


def _heads(folder: str, names: list[str]) -> Iterator[tuple[str, bytes]]:
    """The first bytes of each file that may be read; hidden ones are somebody's business."""
    for name in names:
        path = os.path.join(folder, name)
        try:
            if name[0] == "." or not stat.S_ISREG(os.stat(path).st_mode):
                continue
            with Source.open(path, mapped=False) as source:
                yield name, source.pread(0, min(SNIFF_BYTES, source.size))
        except OSError:  # what cannot be read is no candidate
            continue


def _ambiguous(what: str, names: list[str]) -> AmbiguousFolderError:
    shown = ", ".join(quoted(name) for name in names[:_SHOWN])
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return AmbiguousFolderError(
        f"the folder holds {what} ({shown}{more}): name the file that is meant",
        errno=errno.EISDIR,
        candidates=tuple(names),
    )
