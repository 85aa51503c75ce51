"""The pickles of many files scanned: of a folder with all below it, or of a set. Torch-free."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from aoserial.errors import AoserialError, LimitError, PathError, locating, raise_all
from aoserial.storage.pickle.scan import Report, scan
from aoserial.storage.shards import read_index, resolve
from aoserial.storage.sniff import SNIFF_BYTES, is_json, is_pickle, is_safetensors
from aoserial.storage.source import Source

# What a program hands to torch.load or pickle.load by its name: if it is no pickle, that is told
_NAMED_SO = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".pickle")


@dataclass(frozen=True, kw_only=True, slots=True)
class Scanned:
    """What came of one file.

    Attributes:
        path: of the file.
        report: None when it holds no pickle, or could not be read.
        fault: why it could not be read.
    """

    path: str
    report: Report | None = None
    fault: AoserialError | None = None


def scan_all(path: str) -> Iterator[Scanned]:
    """Scans a file, all files that an index names, or all files in a folder and below it.

    Links to files are followed, links to folders are told of. What a file holds is told by its
    bytes; one that is neither an archive of torch nor begins as a pickle does holds none, unless it
    is named as if it did.

    Raises:
        PathError, Faults: the path, or a file that the index names, cannot be read.
        ShardIndexError, LimitError: an index that is none.
        ContainerError: a single file without pickles, other than safetensors.
    """
    if os.path.isdir(path):
        yield from _in_folder(path)
        return
    with Source.open(path, mapped=False) as source, locating(file=path):
        head = source.pread(0, min(SNIFF_BYTES, source.size))
        listed = read_index(source).shards if is_json(head) else None
        if listed is not None:
            places, missing = resolve(os.path.dirname(path) or ".", listed)
            raise_all(f"{len(missing)} files of the set cannot be read", missing)
    if listed is not None:
        for place in places.values():
            yield _scanned(place)
    elif is_safetensors(head):
        yield Scanned(path=path)
    else:
        yield Scanned(path=path, report=scan(path))


def _in_folder(folder: str) -> Iterator[Scanned]:
    unlisted: list[OSError] = []
    for here, folders, names in os.walk(folder, onerror=unlisted.append):
        folders.sort()
        for name in folders:
            place = os.path.join(here, name)
            if os.path.islink(place):
                fault = PathError("is a link to a folder, which is not followed", errno=None)
                yield Scanned(path=place, fault=fault.locate(file=place))
        for name in sorted(names):
            yield _scanned(os.path.join(here, name))
    for error in unlisted:
        place = os.fspath(error.filename)
        unread = PathError(f"cannot be listed: {error.strerror}", errno=error.errno)
        yield Scanned(path=place, fault=unread.locate(file=place))


def _scanned(path: str) -> Scanned:
    """As `scan`, of one file among many."""
    pickled = path.lower().endswith(_NAMED_SO)
    try:
        with Source.open(path, mapped=False) as source:
            head = source.pread(0, min(SNIFF_BYTES, source.size))
        if is_safetensors(head):
            return Scanned(path=path)
        pickled = pickled or is_pickle(head)
        return Scanned(path=path, report=scan(path))
    except (PathError, LimitError) as fault:
        return Scanned(path=path, fault=fault)
    except AoserialError as fault:
        return Scanned(path=path, fault=fault if pickled else None)
