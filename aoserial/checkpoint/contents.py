"""From what a file holds to what that becomes. Torch-free.

Each group of a catalog is resolved and migrated once, however many records it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from aoserial.errors import (
    AoserialError,
    DriftError,
    OpaqueBytesError,
    OptionError,
    each_of,
    locating,
    raise_all,
)
from aoserial.migrations import STEPS, Outcome, Upgrader
from aoserial.migrations.step import Version
from aoserial.record import Catalog, Group, Record
from aoserial.record.envelope import collect_objects
from aoserial.schema import REGISTRY, fingerprint

# a file of ours needs none of it, and it takes longer to import than all else
REGISTRY.families["torchao"] = "aoserial.torchao"


@dataclass(frozen=True, kw_only=True)
class Prepared:
    """A group and what its records become.

    Attributes:
        outcome: None for records that stay inert.
        reason: why they do, a sentence; empty when nobody registered their type.
    """

    group: Group
    outcome: Outcome | None
    reason: str = ""


def prepare(catalog: Catalog, upgrader: Upgrader, *, stop: Version | None = None) -> list[Prepared]:
    """Resolves and migrates every group.

    Args:
        stop: a type and version that chains stop at.

    Raises:
        AoserialError: one fault; `Faults` with all of them when there are several.
    """
    faults: list[AoserialError] = []
    prepared = prepare_sound(catalog, upgrader, faults, stop=stop)
    raise_all(f"{len(faults)} faults in the checkpoint's records", faults)
    return prepared


def prepare_sound(
    catalog: Catalog,
    upgrader: Upgrader,
    faults: list[AoserialError],
    *,
    stop: Version | None = None,
) -> list[Prepared]:
    """As `prepare`, for the groups that nothing is wrong with; what is goes to `faults`."""
    prepared: list[Prepared] = []
    for group in catalog.groups:
        try:
            with locating(name=spell_members(group)):
                prepared.append(_prepare(group, upgrader, stop))
        except AoserialError as fault:
            faults += each_of(fault)
    faults += _object_drift(catalog, upgrader)
    return prepared


def _prepare(group: Group, upgrader: Upgrader, stop: Version | None) -> Prepared:
    if group.fault is not None:
        raise group.fault
    if upgrader.registry.find(group.template.type) is None:
        return Prepared(group=group, outcome=None)
    try:
        outcome = upgrader.upgrade(group.template, written_with=group.fingerprint, stop=stop)
    except OpaqueBytesError as error:
        return Prepared(group=group, outcome=None, reason=error.message)
    return Prepared(group=group, outcome=outcome)


def become(
    prepared: Sequence[Prepared],
    change: Callable[[Record], Record],
    faults: list[AoserialError],
) -> list[Prepared]:
    """Groups whose records become others once more; what cannot is put among `faults`."""
    changed: list[Prepared] = []
    for one in prepared:
        if one.outcome is None:
            changed.append(one)
            continue
        try:
            with locating(name=spell_members(one.group)):
                record = change(one.outcome.record)
                changed.append(replace(one, outcome=replace(one.outcome, record=record)))
        except AoserialError as fault:
            faults += each_of(fault)
    return changed


def head_of(one: Prepared) -> Record:
    """What a group's records become; as stored where their type is not known."""
    return one.outcome.record if one.outcome else one.group.template


def spell_members(group: Group) -> str:
    """`a.weight`, or `a.weight and 39 others` for a group: its records share their faults."""
    name, *others = group.members
    return f"{name} and {len(others)} others like it" if others else name


def upgrader_for(assume: Mapping[str, str] | None) -> Upgrader:
    """An upgrader that takes these answers to what a file cannot tell.

    Raises:
        OptionError: an answer that is none, or to something nothing asks, which would otherwise go
            unnoticed.
    """
    for family in REGISTRY.families if assume else ():
        REGISTRY.load_family(family)  # its steps may ask what is answered
    questions = STEPS.questions
    for name, answer in (assume or {}).items():
        if name not in questions:
            known = ", ".join(sorted(questions)) or "none"
            raise OptionError(f"no option of 'assume' is called {name!r}; there is {known}")
        if answer not in questions[name].answers:
            choices = " or ".join(map(repr, questions[name].answers))
            raise OptionError(f"assume {name!r} is {answer!r}, expected {choices}")
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
