"""Opened files of every format under one face: named parts, and a catalog of what they are."""

from __future__ import annotations

import os

from aoserial.checkpoint.archives.archive import Archive
from aoserial.checkpoint.archives.pickles import PickleArchive
from aoserial.checkpoint.archives.safetensors import SafetensorsArchive
from aoserial.storage import Source
from aoserial.storage.sniff import SNIFF_BYTES, is_pickle

__all__ = ["Archive", "open_archive"]


def open_archive(path: str | os.PathLike[str]) -> Archive:
    """Opens a checkpoint of whatever format its first bytes say, and reads its header or pickle.

    Raises:
        MissingFileError, PathError: no such file, or not a regular one.
        FormatError, IntegrityError, LimitError: not a checkpoint this version reads.
    """
    source = Source.open(path)
    try:
        pickled = is_pickle(source.pread(0, min(SNIFF_BYTES, source.size)))
        return (PickleArchive if pickled else SafetensorsArchive)(source)
    except BaseException:
        source.close()
        raise
