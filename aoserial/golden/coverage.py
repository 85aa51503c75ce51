"""Whether each released version has a golden. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from pathlib import Path

from aoserial.golden.findings import Finding
from aoserial.golden.settings import Settings
from aoserial.golden.store import Golden, Store
from aoserial.migrations import spell
from aoserial.migrations.step import Version


def released(schemas: Path) -> list[Version]:
    """The types and versions that have a frozen document: `<type id>/<version>.json`."""
    return sorted(
        (path.parent.name, int(path.stem))
        for path in schemas.glob("*/*.json")
        if path.stem.isascii() and path.stem.isdecimal()
    )


def uncovered(schemas: Path, held: Collection[str], *, types: str = "") -> list[Version]:
    """Released types and versions, attribute objects too, that no golden holds.

    Args:
        schemas: the folder of frozen documents.
        held: what goldens hold: `acme.T@1` …
        types: a prefix of the type ids that count.
    """
    return [
        version
        for version in released(schemas)
        if version[0].startswith(types) and spell(version) not in held
    ]


def coverage_findings(settings: Settings) -> Iterator[Finding]:
    """A finding for each released version without a golden that should have one, and the reverse.

    Raises:
        MissingFileError, FormatError: a golden.json or a manifest cannot be read.
    """
    assert settings.schemas is not None
    stores = (Store(folder) for folder in (settings.goldens, *settings.more_goldens))
    held = {version for store in stores for version in store.versions}
    lacking = set(map(spell, uncovered(settings.schemas, held, types=settings.types)))
    for name in sorted(lacking - settings.unseen.keys()):
        yield Finding(
            rule="GOLDEN_MISSING",
            where=name,
            message=f"{settings.schemas.name}/{name.replace('@', '/')}.json is frozen and no "
            "golden holds that version: declare a case that writes it, and record it",
        )
    for name in sorted(settings.unseen.keys() - lacking):
        yield Finding(
            rule="GOLDEN_NOT_UNSEEN",
            where=name,
            message="is listed under tool.aoserial.unseen, and "
            + ("a golden holds it" if name in held else "no such version is frozen")
            + ": take it out there",
        )


def unused_findings(cases: Iterable[str], goldens: Iterable[Golden]) -> Iterator[Finding]:
    """A finding for each golden whose case nobody declares."""
    known = set(cases)
    for golden in goldens:
        if golden.case not in known:
            yield Finding(
                rule="GOLDEN_UNUSED",
                where=str(golden),
                message=f"no case is called {golden.case}: declare it, as retired if no code "
                "writes it any more",
            )
