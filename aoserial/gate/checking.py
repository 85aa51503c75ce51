"""`schema check`: code against frozen documents, and those against an earlier state. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path

from aoserial.errors import OptionError
from aoserial.gate.baseline import against_baseline
from aoserial.gate.code import Code
from aoserial.gate.compare import Difference, compare, compare_enums
from aoserial.gate.finding import Finding, Report
from aoserial.gate.frozen import files_in, read_frozen
from aoserial.gate.git import files_at
from aoserial.gate.goldens import Goldens
from aoserial.gate.lineage import lineage
from aoserial.gate.rules import RULES, Mode
from aoserial.gate.scene import Scene
from aoserial.gate.witness import enum_witness, witness, world_of
from aoserial.migrations import spell
from aoserial.schema import Schema


def check(
    codes: Collection[Code],
    *,
    mode: Mode = "read",
    against: str | None = None,
    goldens: Goldens | None = None,
) -> Report:
    """Checks each of `codes` with the documents in its folder.

    Args:
        mode: `read`: old files must load under the new code; `write`: new files under the old
            code; `full`: both.
        against: a commit of the repository that the folder is in, or another folder of documents.
        goldens: what golden files show; each older version of a tensor type has to be in one.

    Returns:
        every finding; nothing about the documents is raised.
    """
    report = Report()
    if goldens is not None:
        report.add(goldens.faults, mode)
    for code in codes:
        folder = code.folder
        files = {} if folder is None else files_in(folder)
        frozen = read_frozen(files, _spell(folder))
        ours = goldens if goldens is not None and goldens.are_of(folder) else None
        scene = Scene(
            code=code,
            frozen=frozen,
            before=world_of(frozen, code.registry, code.steps),
            after=code.world(frozen),
            mode=mode,
            goldens=ours,
        )
        report.checked += len(frozen.digests)
        report.unchecked += _unseen(scene)
        report.add(frozen.faults, mode)
        report.add(_types(scene), mode)
        report.add(_enums(scene), mode)
        report.add(_gone(scene), mode)
        if against is not None and folder is not None:
            report.add(_earlier(scene, folder, against, report), mode)
    return report


def _unseen(scene: Scene) -> Iterator[str]:
    """Of which versions nobody asks whether a golden file shows them."""
    if scene.goldens is None:
        yield f"goldens: no folder of them was given for {scene.frozen.where}"
        return
    for (kind, version), why in scene.goldens.unseen.items():
        if kind in scene.code.types and version < scene.code.head(kind).version:
            yield f"golden of {spell((kind, version))}: {why}"


def _spell(folder: Path | None) -> str:
    if folder is None:
        return "(no folder)"
    here = Path.cwd()
    return str(folder.relative_to(here) if folder.is_relative_to(here) else folder)


def _types(scene: Scene) -> Iterator[Finding]:
    for name in scene.code.types:
        head = scene.code.head(name)
        documents = scene.frozen.schemas.get(name, {})
        path = f"{name}/{head.version}.json"
        if scene.code.folder is None:
            message = "is registered without a folder of documents (schemas=)"
            yield Finding(rule="VERSION_NOT_FROZEN", subject=str(head), message=message)
        for schema in (head, *scene.code.registry.types[name].older):
            frozen = documents.get(schema.version)
            if frozen is not None and frozen != schema:
                yield from _within(frozen, schema, scene)
        # there is one, or there was: if it cannot be read or is gone, that was told
        known = path in scene.frozen.digests or path in scene.frozen.lock.documents
        yield from lineage(head, documents, scene, is_known=known)


def _within(frozen: Schema, schema: Schema, scene: Scene) -> Iterator[Finding]:
    """A version in the code against its document."""
    path = f"{scene.frozen.where}/{frozen.type}/{frozen.version}.json"
    differences = [one for one in compare(frozen, schema) if _counts(one, scene)]
    for one in differences:
        yield Finding(
            rule=one.rule,
            subject=str(schema),
            field=one.field,
            message=one.message,
            path=path,
            witness=witness(one.rule, one.field, frozen, schema, scene.before, scene.after),
        )
    if not differences:
        message = "the code says more than its document, and may: it is to be frozen again"
        rule = "FROZEN_SCHEMA_OUTDATED"
        yield Finding(rule=rule, subject=str(schema), message=message, path=path)


def _counts(one: Difference, scene: Scene) -> bool:
    return RULES[one.rule].counts_in(scene.mode)


def _enums(scene: Scene) -> Iterator[Finding]:
    code, documents = scene.code, scene.frozen.enums
    for name in (*code.enums, *code.foreign):
        if name not in code.registry.enums:
            continue  # told of where the documents are compared
        enum, frozen = code.registry.enums[name], documents.get(name)
        path = f"{name}/enum.json"
        shown = f"{scene.frozen.where}/{path}"
        if frozen is None:
            known = path in scene.frozen.digests or path in scene.frozen.lock.documents
            if not known and name in code.enums and code.folder:
                message = "has no document yet"
                yield Finding(rule="VERSION_NOT_FROZEN", subject=name, message=message, path=shown)
            continue
        differences = [one for one in compare_enums(frozen, enum) if _counts(one, scene)]
        for one in differences:
            yield Finding(
                rule=one.rule,
                subject=name,
                field=one.field,
                message=one.message,
                path=shown,
                witness=enum_witness(one.rule, one.field, frozen, scene.before, scene.after),
            )
        if not differences and frozen != enum and name in code.enums:
            message = "the code says more than its document, and may: it is to be frozen again"
            rule = "FROZEN_SCHEMA_OUTDATED"
            yield Finding(rule=rule, subject=name, message=message, path=shown)


def _gone(scene: Scene) -> Iterator[Finding]:
    """Documents of types and enums that the code knows no more."""
    registry = scene.code.registry
    for kind, known in (("type", registry.types), ("enum", registry.enums)):
        documents = scene.frozen.schemas if kind == "type" else scene.frozen.enums
        for name in documents:
            if name not in known:
                yield Finding(
                    rule="TYPE_NO_DELETE_UNLESS_ALIASED",
                    subject=name,
                    message=f"has documents, and the code registers no such {kind}",
                    path=f"{scene.frozen.where}/{name}",
                )


def _earlier(scene: Scene, folder: Path, against: str, report: Report) -> Iterator[Finding]:
    """The documents here against those of a commit, or of another folder."""
    try:
        if against and Path(against).is_dir():
            other = Path(against)
            inner = other / folder.name
            files = files_in(inner if inner.is_dir() else other)
            if not files:
                raise OptionError(f"{against} holds no documents")
        else:
            files = files_at(folder, against)
    except OptionError as error:
        message = f"{error.message} ({scene.frozen.where})"
        yield Finding(rule="BASELINE_NOT_FOUND", subject=against, message=message)
        return
    base = read_frozen(files, against)
    if base.faults:
        rest = f", and {len(base.faults) - 1} more" if len(base.faults) > 1 else ""
        report.unchecked.append(f"{against}: {base.faults[0]}{rest}")
    yield from against_baseline(base, scene.frozen, scene)
