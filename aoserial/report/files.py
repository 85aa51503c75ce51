"""Which golden files there are to read: folders `<writer>/<case>/`, and archives of such."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoserial.errors import FormatError, MissingFileError

# what is held against a checkpoint's tensors: ours, and that of the cases of torchao's releases
_EXPECTED = ("expected.safetensors", "expected.pt")
_MODELS = ("model.safetensors", "model.pt")
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True, kw_only=True)
class File:
    """One checkpoint, and where its values are.

    Attributes:
        writer: the release that wrote it: `acme-1.0`.
        case: its name.
    """

    writer: str
    case: str
    path: Path
    expected: Path

    @property
    def name(self) -> str:
        return f"{self.writer}/{self.case}/{self.path.name}"


def find_files(places: Iterable[Path], scratch: Path) -> list[File]:
    """The files of all places, by writer (older releases first) and case; each name once.

    Args:
        scratch: a folder that archives are unpacked into.

    Raises:
        MissingFileError: a place that is not there, or holds no golden.
        FormatError: a file that is no archive.
    """
    found: dict[str, File] = {}
    for number, place in enumerate(places):
        folder = place if place.is_dir() else _unpack(place, scratch / str(number))
        inside = {file.name: file for file in _in(folder)}
        found = inside | found
        if not inside:
            raise MissingFileError(f"{place} holds no golden file, <writer>/<case>/model.…")
    return sorted(found.values(), key=lambda f: (release_key(f.writer), f.case, f.path.name))


def release_key(writer: str) -> tuple[str, tuple[int, ...], str]:
    """Sorts `acme-1.9` before `acme-1.10`, and `acme` before `beta`."""
    package, _, release = writer.rpartition("-")
    return package, tuple(map(int, _NUMBER.findall(release))), release


def _in(folder: Path) -> Iterator[File]:
    for case in sorted(folder.glob("*/*")):
        expected = next((case / name for name in _EXPECTED if (case / name).is_file()), None)
        for path in (case / name for name in _MODELS):
            if expected is not None and path.is_file():
                yield File(writer=case.parent.name, case=case.name, path=path, expected=expected)


def _unpack(archive: Path, folder: Path) -> Path:
    if not archive.exists():
        raise MissingFileError(f"{archive}: no such folder or archive")
    folder.mkdir(parents=True)
    try:
        with tarfile.open(archive) as file:
            file.extractall(folder, filter="data")
    except tarfile.TarError as error:
        raise FormatError(f"{archive} is neither a folder nor a tar archive: {error}") from error
    return folder
