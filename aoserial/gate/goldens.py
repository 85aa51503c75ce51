"""Which types and versions a folder of golden files shows. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from aoserial.errors import AoserialError, MissingFileError
from aoserial.gate.finding import Finding
from aoserial.migrations.step import Version

_SUFFIXES = frozenset({".safetensors", ".pt", ".pth", ".bin"})


@dataclass(frozen=True, kw_only=True)
class Goldens:
    """What golden files show.

    Attributes:
        shown: the types and versions in them.
        unseen: those that no file shows, and why that is.
        of: the folder of the documents whose types are meant; None for all.
        faults: what is wrong with the files.
    """

    shown: Collection[Version]
    unseen: Mapping[Version, str] = field(default_factory=dict)
    of: Path | None = None
    faults: tuple[Finding, ...] = ()

    def are_of(self, folder: Path | None) -> bool:
        """Whether they are goldens of the types whose documents are in that folder."""
        if self.of is None or folder is None:
            return self.of is None
        return self.of.resolve() == folder.resolve()


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
    from aoserial.checkpoint import inspect  # with all readers, and seldom asked for

    try:
        found = inspect(path)
    except AoserialError:
        return
    for row in found.types:
        if row.version is not None:
            yield row.type, row.version
