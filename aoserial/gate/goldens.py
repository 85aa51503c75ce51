"""Which types and versions a folder of golden files shows. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aoserial.checkpoint import inspect
from aoserial.errors import AoserialError, MissingFileError
from aoserial.migrations.step import Version

_SUFFIXES = frozenset({".safetensors", ".pt", ".pth", ".bin"})


def versions_in(folder: Path) -> set[Version]:
    """The types and versions of the records in the checkpoints under `folder`.

    A file that cannot be read shows none; that it cannot is for whoever reads the goldens.

    Raises:
        MissingFileError: no such folder.
    """
    if not folder.is_dir():
        raise MissingFileError(f"there is no folder {str(folder)!r} of golden files")
    return {version for path in sorted(folder.rglob("*")) for version in _versions_of(path)}


def _versions_of(path: Path) -> Iterator[Version]:
    if path.suffix not in _SUFFIXES:
        return
    try:
        found = inspect(path)
    except AoserialError:
        return
    for row in found.types:
        if row.version is not None:
            yield row.type, row.version
