"""Whether each released version has a golden. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from aoserial.golden.findings import Finding
from aoserial.golden.store import Golden
from aoserial.migrations import spell
from aoserial.migrations.step import Version


def released(schemas: Path) -> list[Version]:
    """The types and versions that have a frozen document: `<type id>/<version>.json`."""
    return sorted(
        (path.parent.name, int(path.stem))
        for path in schemas.glob("*/*.json")
        if path.stem.isascii() and path.stem.isdecimal()
    )


def uncovered(schemas: Path, goldens: Iterable[Golden], *, types: str = "") -> list[Version]:
    """Released types and versions, attribute objects too, that no golden holds.

    Args:
        schemas: the folder of frozen documents.
        types: a prefix of the type ids that count.

    Raises:
        MissingFileError, FormatError: a golden.json that cannot be read.
    """
    held = {version for golden in goldens for version in golden.versions}
    return [
        version
        for version in released(schemas)
        if version[0].startswith(types) and spell(version) not in held
    ]


def coverage_findings(
    schemas: Path, goldens: Iterable[Golden], *, types: str = ""
) -> Iterator[Finding]:
    """A finding for each released version without a golden; as `uncovered`."""
    for kind, version in uncovered(schemas, goldens, types=types):
        yield Finding(
            rule="GOLDEN_MISSING",
            where=spell((kind, version)),
            message=f"{schemas.name}/{kind}/{version}.json is frozen and no golden holds that "
            "version: declare a case that writes it, and record it",
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
