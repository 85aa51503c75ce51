"""From an opened file to what it holds and what that becomes. Torch-free.

This is where the stages meet: the storage's keys and metadata become a catalog by whichever decoder
the metadata calls for, and each of its groups is resolved and migrated once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aoserial.errors import AoserialError, DriftError, Faults, OptionError, locating, raise_all
from aoserial.migrations import STEPS, Outcome, Upgrader
from aoserial.migrations.step import Version
from aoserial.record import Catalog, Group
from aoserial.record.envelope import ENVELOPE_KEY, collect_objects, decode_envelope
from aoserial.schema import REGISTRY, fingerprint
from aoserial.storage.safetensors import Entry, SafetensorsFile
from aoserial.torchao import decode_layout, is_torchao


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A group and what its records become; `outcome` is None for a type nobody registered."""

    group: Group
    outcome: Outcome | None


def read_catalog(file: SafetensorsFile) -> Catalog:
    """The catalog of an opened file."""
    header = file.header
    with locating(file=file.path):
        return catalog_of(header.metadata, header.entries, header.raw)


def catalog_of(
    metadata: Mapping[str, str],
    entries: Mapping[str, Entry],
    header: bytes | None = None,
    *,
    partial: bool = False,
) -> Catalog:
    """The catalog of tensors by key, described by whatever metadata is there.

    Args:
        header: the header's bytes, to check their digest.
        partial: the tensors are one shard's: records that lack parts are put aside
            (`Catalog.pending`) instead of being an error.
    """
    if ENVELOPE_KEY in metadata:
        return decode_envelope(metadata, entries, header, partial=partial)
    if is_torchao(metadata):
        return decode_layout(metadata, entries, partial=partial)
    return Catalog(layout="plain", plain={key: key for key in entries}, metadata=dict(metadata))


def prepare(catalog: Catalog, upgrader: Upgrader, *, stop: Version | None = None) -> list[Prepared]:
    """Resolves and migrates every group.

    Args:
        stop: a type and version that chains stop at.

    Raises:
        AoserialError: one fault; `Faults` with all of them when there are several.
    """
    prepared: list[Prepared] = []
    faults: list[AoserialError] = []
    for group in catalog.groups:
        if upgrader.registry.find(group.template.type) is None:
            prepared.append(Prepared(group=group, outcome=None))
            continue
        try:
            with locating(name=spell_members(group)):
                outcome = upgrader.upgrade(
                    group.template, written_with=group.fingerprint, stop=stop
                )
        except Faults as several:
            faults += [fault for fault in several.exceptions if isinstance(fault, AoserialError)]
        except AoserialError as fault:
            faults.append(fault)
        else:
            prepared.append(Prepared(group=group, outcome=outcome))
    faults += _object_drift(catalog, upgrader)
    raise_all(f"{len(faults)} faults in the checkpoint's records", faults)
    return prepared


def spell_members(group: Group) -> str:
    """`a.weight`, or `a.weight and 39 others` for a group: its records share their faults."""
    name, *others = group.members
    return f"{name} and {len(others)} others like it" if others else name


def upgrader_for(assume: Mapping[str, str] | None) -> Upgrader:
    """An upgrader that takes these answers to what a file cannot tell.

    Raises:
        OptionError: an answer to something nothing asks, which would otherwise go unnoticed.
    """
    unknown = sorted(set(assume or ()) - STEPS.questions.keys())
    if unknown:
        known = ", ".join(sorted(STEPS.questions)) or "none"
        raise OptionError(
            f"no option of 'assume' is called {', '.join(map(repr, unknown))}; there is {known}"
        )
    return Upgrader(assume=dict(assume or {}))


def _object_drift(catalog: Catalog, upgrader: Upgrader) -> list[AoserialError]:
    """Attribute objects that were written with another schema of the same version."""
    used: dict[Version, set[str]] = {}
    for group in catalog.groups:
        for value in group.template.attributes.values():
            collect_objects(value, used)
    faults: list[AoserialError] = []
    for head in catalog.objects:
        schema = upgrader.registry.schema(head.type, head.version)
        fields = used.get((head.type, head.version), set())
        if schema is None or head.fingerprint is None or not fields <= schema.by_name.keys():
            continue
        if fingerprint(schema, fields) != head.fingerprint:
            faults.append(
                DriftError(
                    f"{schema} was written with another schema of the same version (fingerprint "
                    f"{head.fingerprint}, here {fingerprint(schema, fields)})"
                )
            )
    return faults


def quiet_upgrader() -> Upgrader:
    """An upgrader that loads no plug-ins: inspecting a file must not import anything."""
    return Upgrader(registry=replace(REGISTRY, plugins=False))
