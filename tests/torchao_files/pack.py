"""Chooses few of many golden cases, packs them for the repository and says what they become.

    PYTHONPATH=tests python -m torchao_files.pack FOLDER

FOLDER has cases of torchao's releases, `torchao-<release>/<case>`. Of them as many are taken as it
takes to have everything at least once: each class path that a pickle names, each form of a type,
each release, each type in each safetensors layout, what each type becomes, each reason to stay
inert and each answer that a file needs. They go into `fixtures/torchao.tar.xz`, and into
`MANIFEST.json` with what is expected of them. A case that is not read as it was written is never
packed.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from support.cases import FIXTURES, PACKED, described
from support.outcomes import Outcome, outcome

import aoserial
from aoserial.checkpoint.archives import open_archive
from aoserial.migrations import spell
from aoserial.schema import Nested, Value
from aoserial.torchao.wrapping import INNER

_FILES = ("case.json", "expected.pt", "model.pt", "model.safetensors")
_MODELS = ("model.pt", "model.safetensors")
_READ = ("equal", "inert")

Trait = tuple[str, ...]


def main(folder: Path) -> None:
    loose = sorted(path.parent for path in FIXTURES.glob("torchao-*/*/case.json"))
    names = {_name(case) for case in loose}
    more = [
        path.parent
        for path in sorted(folder.glob("torchao-*/*/case.json"))
        if _name(path.parent) not in names
    ]
    outcomes = {case: _outcomes(case) for case in (*loose, *more)}
    readable = [case for case in more if all(o.verdict in _READ for o in outcomes[case].values())]
    chosen = _cover(
        {case: set(_traits(case, outcomes[case])) for case in (*loose, *readable)}, taken=loose
    )
    _pack(chosen)
    _write_manifest([*loose, *chosen], outcomes)
    print(f"{len(chosen)} of {len(more)} cases packed, {PACKED.stat().st_size} bytes")


def _name(case: Path) -> str:
    return f"{case.parent.name}/{case.name}"


def _outcomes(case: Path) -> dict[str, Outcome]:
    return {name: outcome(case / name) for name in _MODELS if (case / name).exists()}


# -- choosing -----------------------------------------------------------------------------------


def _traits(case: Path, outcomes: dict[str, Outcome]) -> Iterator[Trait]:
    """All that a case has of what has to be there once."""
    yield ("release", case.parent.name)
    yield from (("class", path) for path in _classes(described(case)["keys"]))
    for file, found in outcomes.items():
        yield from (("inert", reason) for reason in found.inert)
        yield from (("needs", *pair) for pair in found.needs.items())
        with open_archive(case / file) as archive:
            groups = archive.catalog.groups
        for group in groups:
            record = group.template
            evidence = "; ".join(group.era.evidence) if group.era else ""
            yield ("form", file, record.type, str(record.version), evidence)
            for kind in found.becomes:
                yield ("becomes", record.type, str(record.version), kind)
            for value in record.attributes.values():
                yield from (("holds", record.type, held) for held in _held(value))


def _classes(told: object) -> Iterator[str]:
    """The classes that a description names, of tensors and of what they hold."""
    if isinstance(told, list):
        for each in told:
            yield from _classes(each)
    elif isinstance(told, dict):
        for key, value in told.items():
            if key in ("class", "type") and isinstance(value, str):
                yield value
            else:
                yield from _classes(value)


def _held(value: Value) -> Iterator[str]:
    if isinstance(value, tuple):
        for each in value:
            yield from _held(each)
    elif isinstance(value, Nested):
        inner = value.fields.get("type")
        yield f"{value.type} {inner}" if inner else value.type
        for each in value.fields.values():
            yield from _held(each)


def _cover(traits: dict[Path, set[Trait]], *, taken: list[Path]) -> list[Path]:
    """Cases that have every trait between them, beside those taken; always the one that has most
    of what lacks, and of those that have as much the smallest."""
    lacking = set().union(*traits.values()) - set().union(*(traits[case] for case in taken))
    sizes = {case: sum(path.stat().st_size for path in case.iterdir()) for case in traits}
    chosen = []
    while lacking:
        best = max(traits, key=lambda case: (len(traits[case] & lacking), -sizes[case]))
        lacking -= traits[best]
        chosen.append(best)
    return sorted(chosen)


# -- packing ------------------------------------------------------------------------------------


def _pack(cases: list[Path]) -> None:
    """The cases as one archive, the same bytes whoever packs them and whenever."""
    with tarfile.open(PACKED, "w:xz", format=tarfile.USTAR_FORMAT, preset=9) as archive:
        for case in cases:
            for path in (case / name for name in _FILES):
                if path.exists():
                    entry = tarfile.TarInfo(f"{_name(case)}/{path.name}")
                    entry.size = path.stat().st_size
                    with path.open("rb") as file:
                        archive.addfile(entry, file)


def _write_manifest(cases: list[Path], outcomes: dict[Path, dict[str, Outcome]]) -> None:
    """`MANIFEST.json` anew, a line a case; what it said of the files that were there stays."""
    path = FIXTURES / "MANIFEST.json"
    manifest = json.loads(path.read_text())
    manifest["files"][PACKED.name] = _digest(PACKED)
    manifest["cases"] = {
        _name(case): {
            "writer": f"torchao {case.parent.name.removeprefix('torchao-')}",
            "sha256": {
                name: _digest(case / name)["sha256"] for name in _FILES if (case / name).exists()
            },
            "expected": {file: expected(case / file, one) for file, one in outcomes[case].items()},
        }
        for case in sorted(cases)
    }
    lines = ",\n".join(
        f"  {json.dumps(name)}: {json.dumps(told)}" for name, told in manifest.pop("cases").items()
    )
    head = json.dumps(manifest, indent=1).removesuffix("\n}")
    path.write_text(f'{head},\n "cases": {{\n{lines}\n }}\n}}\n')


def expected(path: Path, found: Outcome) -> dict[str, object]:
    """What the manifest says that a file becomes."""
    told: dict[str, object] = {
        "becomes": found.becomes,
        "count": sum(found.becomes.values()),
        "equal": found.equal,
        "stored": stored(path),
    }
    if found.inert:
        told["inert"] = found.inert
    if found.needs:
        told["assume"] = found.needs
    era = aoserial.inspect(path).era
    return told | ({"era": str(era)} if era else {})


def stored(path: Path) -> list[str]:
    """The types and versions in a file, those of attribute objects and inner tensors too."""
    with open_archive(path) as archive:
        records = [group.template for group in archive.catalog.groups]
    kinds = {(record.type, record.version) for record in records}
    for record in records:
        for value in record.attributes.values():
            kinds |= set(_inside(value))
    return sorted(map(spell, kinds))


def _inside(value: Value) -> Iterator[tuple[str, int]]:
    if isinstance(value, tuple):
        for each in value:
            yield from _inside(each)
    elif isinstance(value, Nested):
        yield value.type, value.version
        if value.type == INNER.type:
            yield str(value.fields["type"]), int(value.fields["version"])
        for each in value.fields.values():
            yield from _inside(each)


def _digest(path: Path) -> dict[str, object]:
    data = path.read_bytes()
    return {"sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
