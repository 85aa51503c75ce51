"""What golden files show, for the gate. Torch-free.

Of a project's own, nothing is read but descriptions and digests. Whether a description is true of
its file, the project's golden suite asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aoserial.errors import AoserialError
from aoserial.gate import Finding, Goldens
from aoserial.gate.goldens import versions_in
from aoserial.golden.settings import Settings
from aoserial.golden.store import MANIFEST, Store
from aoserial.migrations.step import Version


def goldens_of(settings: Settings) -> Goldens:
    """The goldens of a project; what is wrong with them is noted, and not raised."""
    shown: set[Version] = set()
    faults: list[Finding] = []
    for folder in (settings.goldens, *settings.more_goldens):
        if folder == settings.goldens and not folder.is_dir():
            continue  # nothing was recorded yet
        told, wrong = _told(Store(folder), _spell(folder, settings.root))
        shown |= told
        faults += wrong
    return Goldens(
        shown=shown,
        unseen={_version(name): why for name, why in settings.unseen.items()},
        of=settings.schemas,
        faults=tuple(faults),
    )


def goldens_in(folder: Path) -> Goldens:
    """The golden files of a folder by themselves; each is read, and its manifest, if it has one.

    Raises:
        MissingFileError: no such folder.
    """
    shown = versions_in(folder)
    if not (folder / MANIFEST).is_file():
        return Goldens(shown=shown)
    store, where = Store(folder), str(folder)
    told, faults = _told(store, where)
    return Goldens(shown=shown | told, faults=tuple(faults))


def _told(store: Store, where: str) -> tuple[set[Version], list[Finding]]:
    """What the descriptions in a folder say that it shows, and what is wrong with its files."""
    faults = list(_faults(store, where))
    try:
        return set(map(_version, store.versions)), faults
    except AoserialError as error:
        # of a file that was edited, which was told; or of one that never was right
        return set(), faults or [_fault(MANIFEST, where, str(error))]


def _faults(store: Store, where: str) -> Iterator[Finding]:
    """Files that are gone or have other bytes than when they were written."""
    if not (store.folder / MANIFEST).is_file():
        message = "there is none, so nothing says what the golden files were"
        yield _fault(MANIFEST, where, message)
    for one in store.check():
        if one.rule == "GOLDEN_EDITED":
            yield _fault(one.where, where, one.message)


def _fault(file: str, where: str, message: str) -> Finding:
    path = f"{where}/{file}"
    return Finding(rule="GOLDEN_EDITED", subject=path, message=message, path=path)


def _spell(folder: Path, root: Path) -> str:
    return str(folder.relative_to(root) if folder.is_relative_to(root) else folder)


def _version(name: str) -> Version:
    """`acme.T@1` as type and version."""
    kind, _, version = name.rpartition("@")
    return kind, int(version)
