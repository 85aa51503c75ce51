"""The documents here against those of an earlier state. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator

from aoserial.gate.compare import compare, compare_enums
from aoserial.gate.finding import Finding
from aoserial.gate.frozen import Frozen, document_path
from aoserial.gate.lineage import reused
from aoserial.gate.scene import Scene
from aoserial.gate.witness import enum_witness, witness, world_of
from aoserial.schema import EnumSchema, Schema


def against_baseline(base: Frozen, here: Frozen, scene: Scene) -> Iterator[Finding]:
    """What became of the documents that `base` had, and whether what is new may follow them."""
    registry = scene.code.registry
    worlds = (
        world_of(base, registry, scene.code.steps),
        world_of(here, registry, scene.code.steps),
    )
    now = dict(here.readable)
    for path, old in base.readable:
        new = now.get(path)
        where = f"{here.where}/{path}"
        if new is None:
            if path not in here.digests:  # else it is there, and its fault was told
                yield _missing(old, where, base, here)
        elif isinstance(old, EnumSchema) and isinstance(new, EnumSchema):
            for one in compare_enums(old, new):
                proof = enum_witness(one.rule, one.field, old, *worlds)
                yield Finding(
                    rule=one.rule,
                    subject=str(new),
                    field=one.field,
                    message=f"{one.message} ({base.where})",
                    path=where,
                    witness=proof,
                )
        elif isinstance(old, Schema) and isinstance(new, Schema):
            for one in compare(old, new):
                yield Finding(
                    rule=one.rule,
                    subject=str(new),
                    field=one.field,
                    message=f"{one.message} ({base.where})",
                    path=where,
                    witness=witness(one.rule, one.field, old, new, *worlds),
                )
    yield from _new_versions(base, here)
    yield from _lock(base, here)


def _missing(old: Schema | EnumSchema, where: str, base: Frozen, here: Frozen) -> Finding:
    known = old.type in here.schemas or old.type in here.enums
    rule = "FROZEN_SCHEMA_MISSING" if known else "TYPE_NO_DELETE_UNLESS_ALIASED"
    subject = document_path(old) if known else old.type
    message = f"{base.where} has the document of {old}, and it is gone"
    return Finding(rule=rule, subject=subject, message=message, path=where)


def _new_versions(base: Frozen, here: Frozen) -> Iterator[Finding]:
    for kind, versions in here.schemas.items():
        if kind not in base.schemas:
            continue
        last = max(base.schemas[kind])
        for version in sorted(versions):
            if version <= last:
                continue
            schema = versions[version]
            path = f"{here.where}/{document_path(schema)}"
            message = f"is new since {base.where}: older readers know up to version {last}"
            yield Finding(rule="VERSION_RAISED", subject=str(schema), message=message, path=path)
            if version - 1 not in versions:
                message = f"follows version {last} of {base.where}"
                yield Finding(
                    rule="VERSION_SKIPPED", subject=str(schema), message=message, path=path
                )
            yield from reused(schema, versions, here.where)


def _lock(base: Frozen, here: Frozen) -> Iterator[Finding]:
    """Digests are only ever added to the lock."""
    tables = (
        (base.lock.documents, here.lock.documents),
        (base.lock.steps, here.lock.steps),
    )
    for old, new in tables:
        for subject, digests in old.items():
            if subject in new and not set(digests) <= set(new[subject]):
                message = f"the lock of {base.where} lists digests that are gone"
                yield Finding(
                    rule="LOCK_HISTORY_LOST",
                    subject=subject,
                    message=message,
                    path=f"{here.where}/lock.json",
                )
