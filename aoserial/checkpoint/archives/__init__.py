"""Opened checkpoints of every format under one face: named parts, and what they are."""

from __future__ import annotations

import os

from aoserial.checkpoint.archives.archive import Archive
from aoserial.checkpoint.archives.opening import first_bytes, open_file
from aoserial.checkpoint.archives.safetensors import SafetensorsArchive
from aoserial.errors import locating
from aoserial.storage import Source
from aoserial.storage.sniff import is_json

__all__ = ["Archive", "SafetensorsArchive", "open_archive"]


def open_archive(path: str | os.PathLike[str]) -> Archive:
    """Opens a checkpoint of whatever format its first bytes say, and reads its headers or pickles.

    Args:
        path: a safetensors or torch.save file, the index of a sharded set of these, or a folder
            with one of them (see `storage.shards.folder`).

    Raises:
        MissingFileError, PathError: no such file, not a regular one, or a folder in which several
            could be meant.
        FormatError, IntegrityError, LimitError: not a checkpoint this version reads.
        Faults: an index and shards that do not go together.
    """
    path = os.fspath(path)
    with locating(file=path):
        if os.path.isdir(path):
            from aoserial.storage.shards import find_checkpoint  # sets are not for everybody

            path = find_checkpoint(path)
        source = Source.open(path)
        try:
            indexed = is_json(first_bytes(source))
        except BaseException:
            source.close()
            raise
        if not indexed:
            return open_file(source)
        from aoserial.checkpoint.archives.sharded import ShardedArchive  # reads sets of all formats

        return ShardedArchive.open(source)
