"""Does a change truly break a file? The resolver is asked. Torch-free.

A world is what a program knows at one time: types, enums, steps. A record that one world's writer
may write is read in the other; the smallest that fails there, or means something else there, is
the witness of a finding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aoserial.errors import AoserialError
from aoserial.gate.candidates import candidates
from aoserial.gate.finding import Witness
from aoserial.gate.frozen import Frozen
from aoserial.gate.rules import RULES, Direction
from aoserial.migrations import Steps, Upgrader
from aoserial.record import Record
from aoserial.schema import (
    EnumSchema,
    FrozenMap,
    Nested,
    Registry,
    Schema,
    Symbol,
    Value,
    check_members,
    fingerprint,
    resolve,
)
from aoserial.schema.values import encode


@dataclass(frozen=True, kw_only=True)
class World:
    """What one program knows."""

    registry: Registry
    steps: Steps

    def read(self, record: Record, written_with: str | None) -> Record:
        """The record as this program takes it, at the newest version it knows."""
        upgrader = Upgrader(registry=self.registry, steps=self.steps)
        return upgrader.upgrade(record, written_with=written_with).record

    def read_object(self, nested: Nested) -> Value:
        upgrader = Upgrader(registry=self.registry, steps=self.steps)
        return check_members(upgrader.upgrade_value(nested), self.registry, [])


def world_of(frozen: Frozen, rest: Registry, steps: Steps) -> World:
    """The program whose documents these are.

    Args:
        rest: where types and enums that are not frozen there come from.
        steps: of which those are taken that it can have had.
    """
    registry = Registry(types=dict(rest.types), enums={**rest.enums, **frozen.enums})
    for kind, versions in frozen.schemas.items():
        head = max(versions)
        older = tuple(schema for version, schema in versions.items() if version < head)
        registry.types.pop(kind, None)
        registry.add(versions[head], owner=frozen.where, older=older)
    return World(registry=registry, steps=own_steps(registry, steps))


def own_steps(registry: Registry, steps: Steps) -> Steps:
    """The steps that lead to a head: not those that leave it for another type."""
    known = {
        source: step
        for source, step in steps.table.items()
        if source[0] in registry.types and source[1] < registry.types[source[0]].head.version
    }
    return Steps(table=known)


def witness(rule: str, field: str, old: Schema, new: Schema, *worlds: World) -> Witness | None:
    """The smallest record of `old` that the new world breaks, or of `new` that the old one does.

    Args:
        rule: which directions to look in.
        field: what the rule is about.
        worlds: the old and the new one.
    """
    before, after = worlds
    ways: dict[Direction, tuple[Schema, World, World]] = {
        "read": (old, before, after),
        "write": (new, after, before),
    }
    for direction in RULES[rule].breaks:
        written, writer, reader = ways[direction]
        for record in candidates(written, field, writer.registry):
            if direction == "write" and _uses_older_names(record, written):
                continue  # today's code writes today's names
            proof = fingerprint(written, {*record.attributes, *record.parts})
            outcome = outcome_of(record, proof, written, writer, reader)
            if outcome:
                return Witness(
                    direction=direction,
                    record=as_json(record, written),
                    written_with=proof,
                    outcome=outcome,
                )
    return None


def _uses_older_names(record: Record, schema: Schema) -> bool:
    older = {name for field in schema.fields for name in field.renamed_from}
    return not older.isdisjoint({*record.attributes, *record.parts})


def outcome_of(
    record: Record, proof: str | None, written: Schema, writer: World, reader: World
) -> str:
    """What goes wrong when `reader` reads what `writer` wrote; empty when nothing does."""
    if written.kind == "object":
        return _outcome_of_object(record, written, writer, reader)
    try:
        found = reader.read(record, proof)
    except AoserialError as error:
        return f"{type(error).__name__}: {error}"
    if (found.type, found.version) != (record.type, record.version):
        return ""  # a step has said what it means now
    meant = resolve(
        written,
        shape=record.shape,
        attributes=record.attributes,
        parts=record.parts,
        registry=writer.registry,
    )
    read_by = reader.registry.schema(found.type, found.version)
    assert read_by is not None  # it has just been read by it
    lost = _silently_lost(record, found, written, read_by)
    return lost or _silently_other(meant.attributes, found.attributes, written, read_by)


def _outcome_of_object(record: Record, written: Schema, writer: World, reader: World) -> str:
    nested = Nested(written.type, written.version, record.attributes)
    try:
        found = reader.read_object(nested)
    except AoserialError as error:
        return f"{type(error).__name__}: {error}"
    if not isinstance(found, Nested) or found.version != nested.version:
        return ""
    meant = check_members(nested, writer.registry, [])
    assert isinstance(meant, Nested)
    read_by = reader.registry.schema(written.type, written.version)
    assert read_by is not None  # it has just been read by it
    used = set(nested.fields)  # the envelope keeps the fingerprint of every object in use
    if fingerprint(read_by, used) != fingerprint(written, used):
        return "DriftError: the object was written with another schema of the same version"
    return _silently_other(meant.fields, found.fields, written, read_by)


def _silently_other(
    meant: Mapping[str, Value], taken: Mapping[str, Value], written: Schema, read_by: Schema
) -> str:
    """An attribute that the reader takes for another value than the writer's; empty for none.

    Args:
        meant, taken: by the names that the two schemas have for them.
    """
    for field in written.attributes:
        for name in (field.name, *field.renamed_from):
            known = read_by.by_name.get(name)
            if known is None or known.name not in taken:
                continue
            if repr(taken[known.name]) != repr(meant[field.name]):
                value = meant[field.name]
                return f"no error: {known.name} is taken for {taken[known.name]!r}, was {value!r}"
    return ""


def _silently_lost(record: Record, found: Record, written: Schema, read_by: Schema) -> str:
    """A tensor that the reader knows under another name, and takes to be absent."""
    for field in written.tensors:
        for name in (field.name, *field.renamed_from):
            known = read_by.by_name.get(name)
            if field.name in record.parts and known and known.name not in found.parts:
                return f"no error: {known.name} is taken to be absent, and is {field.name}"
    return ""


def enum_witness(rule: str, symbol: str, old: EnumSchema, *worlds: World) -> Witness | None:
    """The symbol that one world writes and the other refuses, or takes for another."""
    before, after = worlds
    names = {"ENUM_SAME_FALLBACK": "of_a_newer_writer"}
    value = Symbol(old.type, names.get(rule, symbol))
    direction = RULES[rule].breaks[0]
    writer, reader = (before, after) if direction == "read" else (after, before)
    try:
        meant = check_members(value, writer.registry, [])
        taken = check_members(value, reader.registry, [])
    except AoserialError as error:
        outcome = f"{type(error).__name__}: {error}"
    else:
        outcome = "" if meant == taken else f"no error: {meant!r} is taken for {taken!r}"
    if not outcome:
        return None
    return Witness(direction=direction, record=encode(value), written_with=None, outcome=outcome)


def as_json(record: Record, schema: Schema) -> dict[str, Any]:
    """A record, or an object's fields, in the JSON form that its document describes."""
    attributes = {name: encode(value) for name, value in record.attributes.items()}
    if schema.kind == "object":
        found: dict[str, Any] = encode(
            Nested(record.type, record.version, FrozenMap(record.attributes))
        )
        return found
    return {
        "type": record.type,
        "version": record.version,
        "shape": list(record.shape),
        "dtype": record.dtype,
        "attributes": attributes,
        "parts": {
            name: {"dtype": part.dtype, "shape": list(part.shape)}
            for name, part in record.parts.items()
        },
    }
