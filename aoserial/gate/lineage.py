"""Versions of a type, and the steps between them. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from aoserial.errors import AoserialError, MigrationError
from aoserial.gate.code import objects_named
from aoserial.gate.example import example
from aoserial.gate.finding import Finding, Witness
from aoserial.gate.scene import Scene
from aoserial.gate.steps import code_digest
from aoserial.gate.witness import as_json, outcome_of, witness
from aoserial.migrations import Step, spell
from aoserial.schema import Schema, fingerprint

Documents = Mapping[int, Schema]


def lineage(
    head: Schema, documents: Documents, scene: Scene, *, is_known: bool
) -> Iterator[Finding]:
    """What is wrong with the line of a type's versions.

    Args:
        head: as the code declares it.
        documents: the frozen ones that could be read.
        is_known: there is a document of the head, be it readable or not.
    """
    if scene.code.folder is not None:
        yield from _number(head, documents, scene, is_known=is_known)
    yield from _steps(head, documents, scene)
    yield from _released(head, scene)
    if scene.goldens is not None and head.kind == "tensor":
        for version in range(min(documents, default=head.version), head.version):
            known = (*scene.goldens.shown, *scene.goldens.unseen)
            if (head.type, version) not in known:
                subject = spell((head.type, version))
                message = "no golden file shows that it still reads"
                yield Finding(rule="GOLDEN_MISSING", subject=subject, message=message)


def _number(
    head: Schema, documents: Documents, scene: Scene, *, is_known: bool
) -> Iterator[Finding]:
    """The head's version against those that are frozen."""

    def found(rule: str, message: str, proof: Witness | None = None) -> Finding:
        path = f"{scene.frozen.where}/{head.type}/{head.version}.json"
        return Finding(rule=rule, subject=str(head), message=message, path=path, witness=proof)

    last = max(documents, default=0)
    for version in range(min(documents, default=1), last):
        path = f"{head.type}/{version}.json"
        told = path in scene.frozen.digests or path in scene.frozen.lock.documents
        if version not in documents and not told:
            yield found(
                "VERSION_SKIPPED",
                f"versions {version - 1} and {version + 1} are frozen, and none between",
            )
    if head.version < last:
        drafted = replaced_version(documents[last], head.version) == head
        rule = "VERSION_NOT_BUMPED" if drafted else "VERSION_LOWERED"
        yield found(rule, f"version {last} is frozen, and the code says {head.version}")
    if is_known:
        return
    yield found("VERSION_NOT_FROZEN", "has no document yet")
    if not documents:
        return
    if head.version > last + 1:
        yield found("VERSION_SKIPPED", f"follows version {last}")
    if head.version > last:
        old = documents[last]
        proof = witness("VERSION_RAISED", "", old, head, scene.before, scene.after)
        yield found("VERSION_RAISED", f"older readers know up to version {last}", proof)
        yield from reused(head, documents, scene.frozen.where)


def replaced_version(schema: Schema, version: int) -> Schema | None:
    """The schema said to be of another version, None where a field speaks of a later one."""
    try:
        return replace(schema, version=version)
    except AoserialError:
        return None


def reused(head: Schema, documents: Documents, where: str) -> Iterator[Finding]:
    """Names that an earlier version had and the one before this had not: they come back."""
    earlier = [schema for version, schema in documents.items() if version < head.version]
    last = max(earlier, key=lambda schema: schema.version)
    for field in head.live_fields:
        before = last.by_name.get(field.name)
        was_there = any(field.name in schema.by_name for schema in earlier)
        if was_there and (before is None or before.removed):
            yield Finding(
                rule="RESERVED_NAME_REUSED",
                subject=str(head),
                field=field.name,
                message="was a field of an earlier version, was removed, and is back",
                path=f"{where}/{head.type}/{head.version}.json",
            )


def _steps(head: Schema, documents: Documents, scene: Scene) -> Iterator[Finding]:
    """The steps of the chain to the head."""
    steps = scene.code.steps
    for version in range(min(documents, default=head.version), head.version):
        old = documents.get(version)
        if steps.find(head.type, version) is None:
            yield _missing(head, version, old, scene)
        elif old is not None and (proof := _unfinished(old, scene)) is not None:
            subject = spell((head.type, version))
            message = "the step that leaves it was drafted, and not written"
            yield Finding(rule="STEP_UNFINISHED", subject=subject, message=message, witness=proof)
    step = steps.find(head.type, head.version)
    onwards = step is not None and (head.type, head.version + 1) in step.targets
    if step is not None and onwards and not _refuses(step, head, scene):
        message = f"{step.name} leads to version {head.version + 1}, and the code says otherwise"
        yield Finding(rule="VERSION_NOT_BUMPED", subject=str(head), message=message)


def _refuses(step: Step, head: Schema, scene: Scene) -> bool:
    """Whether a step is there to refuse records, as that of bytes nobody can read."""
    record = example(head, scene.after.registry)
    if record is None or head.kind == "object":
        return False
    try:
        step.function(record)
    except MigrationError:
        return False
    except AoserialError:
        return True
    except Exception:
        return False
    return False


def _missing(head: Schema, version: int, old: Schema | None, scene: Scene) -> Finding:
    proof = (
        None if old is None else witness("STEP_MISSING", "", old, head, scene.before, scene.after)
    )
    subject = spell((head.type, version))
    message = f"no step leads from it towards version {head.version}"
    if head.kind == "tensor":
        return Finding(rule="STEP_MISSING", subject=subject, message=message, witness=proof)
    holders = ", ".join(_holders(head.type, scene)) or "attributes of type any"
    message = f"{message}; held by {holders}"
    rule = "NESTED_VERSION_RANGE_NARROWED"
    return Finding(rule=rule, subject=subject, message=message, witness=proof)


def _holders(object_id: str, scene: Scene) -> Iterator[str]:
    for kind in scene.code.registry.types.values():
        if object_id in objects_named(kind.head):
            yield kind.head.type


def _unfinished(old: Schema, scene: Scene) -> Witness | None:
    record = example(old, scene.before.registry)
    if record is None or old.kind == "object":
        return None
    try:
        scene.after.read(record, None)
    except MigrationError as error:
        if not isinstance(error.__cause__, NotImplementedError):
            return None
        return Witness(
            direction="read",
            record=as_json(record, old),
            written_with=fingerprint(old, {*record.attributes, *record.parts}),
            outcome=outcome_of(record, None, old, scene.before, scene.after),
        )
    except AoserialError:
        return None  # what it refuses is its own affair
    return None


def _released(head: Schema, scene: Scene) -> Iterator[Finding]:
    """The steps of a type that were recorded at a release."""
    for subject, digests in scene.frozen.lock.steps.items():
        kind, _, version = subject.rpartition("@")
        if kind != head.type:
            continue
        step = scene.code.steps.find(kind, int(version))
        path = f"{scene.frozen.where}/lock.json"
        if step is None:
            if int(version) >= head.version:  # the rest of the chain was looked at above
                message = "the step that left it was released, and is gone"
                yield Finding(rule="STEP_MISSING", subject=subject, message=message, path=path)
        elif code_digest(step) != digests[-1]:
            message = f"{step.name} does something else than when it was released"
            rule = "STEP_EDITED_AFTER_RELEASE"
            yield Finding(rule=rule, subject=subject, message=message, path=path)
