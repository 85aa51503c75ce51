"""Running a record's chain of steps up to the head of its type. Torch-free.

A chain runs on a record whose parts are slots, once for all records like it; what comes out says
how each part is made from those that went in, and is bound to real parts afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from aoserial.errors import (
    AoserialError,
    DriftError,
    EraError,
    FieldError,
    MigrationError,
    VersionError,
    locating,
)
from aoserial.migrations.step import STEPS, Step, Steps, Version, spell
from aoserial.record import Record
from aoserial.schema import (
    FLOATING,
    REGISTRY,
    FrozenMap,
    Nested,
    Registry,
    Resolution,
    Value,
    fingerprint,
    resolve,
)
from aoserial.storage import LeafPart, Part, ViewPart

MAX_STEPS = 1000  # more than any type's history; a chain of types that never ends stops here


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What becomes of a record.

    Attributes:
        record: at the head of its type, its parts derived from those of the record given.
        steps: the steps that ran, in order.
        resolutions: what was filled in, renamed or ignored on the way, by type and version.
        assumed: `option=answer` for what a file could not tell and nobody answered.
    """

    record: Record
    steps: tuple[Step, ...] = ()
    resolutions: tuple[tuple[Version, Resolution], ...] = ()
    assumed: tuple[str, ...] = ()

    @property
    def lossy(self) -> tuple[Step, ...]:
        return tuple(step for step in self.steps if step.lossy)


@dataclass(frozen=True, kw_only=True)
class Upgrader:
    """Resolves and migrates records by the given tables.

    Attributes:
        assume: answers to the questions of steps.
    """

    registry: Registry = field(default_factory=lambda: REGISTRY)
    steps: Steps = field(default_factory=lambda: STEPS)
    assume: Mapping[str, str] = field(default_factory=dict)

    def upgrade(
        self, record: Record, *, written_with: str | None = None, stop: Version | None = None
    ) -> Outcome:
        """Brings a record to the head of its type, and of the types that took it over.

        Args:
            record: as stored; its type must be registered.
            written_with: the fingerprint of the schema it was written with, if the file has one.
            stop: a type and version to stop at if the chain reaches it.

        Raises:
            VersionError: the record is newer than the head.
            DriftError: same version, another fingerprint.
            MigrationError: a gap, a cycle, or a step that breaks its word.
            FieldError, Faults: fields that the schema does not allow.
        """
        seen: list[Version] = []
        steps: list[Step] = []
        resolutions: list[tuple[Version, Resolution]] = []
        assumed: list[str] = []
        stored = record
        self._check_version(stored)
        while True:
            here = (record.type, record.version)
            if here in seen or len(seen) > MAX_STEPS:
                raise MigrationError(f"migrations go round in a circle at {spell(here)}")
            seen.append(here)
            record, resolution = self._resolve(record)
            if not steps:  # after resolution, whose faults say more than that something differs
                self._check_drift(stored, written_with)
            if resolution is not None:
                resolutions.append((here, resolution))
            step = self._next(record) if here != stop else None
            if step is None:
                return Outcome(
                    record=record,
                    steps=tuple(steps),
                    resolutions=tuple(resolutions),
                    assumed=tuple(assumed),
                )
            record = _run(step, record, self._answers(step, record, assumed))
            steps.append(step)

    def upgrade_value(self, value: Value) -> Value:
        """`value` with every nested object at its head, the inner ones first."""
        if isinstance(value, tuple):
            return tuple(self.upgrade_value(item) for item in value)
        if not isinstance(value, Nested):
            return value
        fields = {name: self.upgrade_value(item) for name, item in value.fields.items()}
        nested = replace(value, fields=FrozenMap(fields))
        found = self.registry.find(nested.type)
        if found is None:
            return nested  # resolution names the field that holds it
        if nested.version > found.head.version:
            raise _too_new(nested.type, nested.version, found.head.version)
        while nested.version < found.head.version:
            step = self.steps.find(nested.type, nested.version)
            if step is None:
                raise _gap(nested.type, nested.version, found.head.version)
            nested = _run(step, nested, {})
        return nested

    def _resolve(self, record: Record) -> tuple[Record, Resolution | None]:
        """Validates against the schema of the record's version, where one is known."""
        attributes = {}
        for name, value in record.attributes.items():
            with locating(field=name):
                attributes[name] = self.upgrade_value(value)
        schema = self.registry[record.type].at(record.version)
        allowed = FLOATING if schema is None else schema.logical_dtypes
        if record.dtype not in allowed:
            choices = ", ".join(allowed)
            raise FieldError(
                f"is {record.dtype}, but a quantized tensor stands for one of {choices}"
            ).locate(field="dtype")
        if schema is None:
            return replace(record, attributes=FrozenMap(attributes)), None
        resolution = resolve(
            schema,
            shape=record.shape,
            attributes=attributes,
            parts=record.parts,
            registry=self.registry,
        )
        resolved = replace(
            record, attributes=FrozenMap(resolution.attributes), parts=resolution.parts
        )
        return resolved, resolution

    def _next(self, record: Record) -> Step | None:
        step = self.steps.find(record.type, record.version)
        head = self.registry[record.type].head.version
        if step is None and record.version < head:
            raise _gap(record.type, record.version, head)
        return step

    def _answers(self, step: Step, record: Record, assumed: list[str]) -> dict[str, str | None]:
        """The answers to a step's questions; those nobody gave are noted in `assumed`.

        A question that does not concern the record may stay unanswered; the step is given None.
        """
        answers: dict[str, str | None] = {}
        for question in step.asks:
            choices = " or ".join(map(repr, question.answers))
            answer = self.assume.get(question.name)
            if answer is None:
                answer = question.default
                if question.concerns(record) and answer is not None:
                    assumed.append(f"{question.name}={answer}")
            elif answer not in question.answers:
                raise FieldError(f"assume {question.name!r} is {answer!r}, expected {choices}")
            if answer is None and question.concerns(record):
                raise EraError(
                    f"{question.why}; say which with assume={{{question.name!r}: …}}, {choices}",
                    candidates=question.answers,
                )
            answers[question.name] = answer
        return answers

    def _check_version(self, record: Record) -> None:
        head = self.registry[record.type].head.version
        if record.version > head:
            raise _too_new(record.type, record.version, head)

    def _check_drift(self, record: Record, written_with: str | None) -> None:
        schema = self.registry[record.type].at(record.version)
        if written_with is None or schema is None:
            return
        used = {*record.attributes, *record.parts}
        if used <= schema.by_name.keys() and fingerprint(schema, used) != written_with:
            raise DriftError(
                f"{schema} was written with another schema of the same version (fingerprint "
                f"{written_with}, here {fingerprint(schema, used)}); one of the two was changed "
                f"without a new version"
            )


def _run(step: Step, value: Any, answers: Mapping[str, str | None]) -> Any:
    """Runs one step and holds it to its word."""
    try:
        result = step.function(value, **answers)
    except AoserialError:
        raise
    except Exception as error:
        raise MigrationError(f"step {step} failed: {type(error).__name__}: {error}") from error
    if type(result) is not type(value):
        raise MigrationError(f"step {step} returned a {type(result).__name__}")
    if (result.type, result.version) not in step.targets:
        raise MigrationError(f"step {step} returned {spell((result.type, result.version))}")
    return result


def _too_new(kind: str, found: int, supported: int) -> VersionError:
    return VersionError(
        f"{kind}@{found} is newer than this reader, which knows up to version {supported}; "
        f"a newer release of what provides {kind.partition('.')[0]!r} types reads it",
        found=found,
        supported=supported,
    )


def _gap(kind: str, version: int, head: int) -> MigrationError:
    return MigrationError(
        f"no step leads from {kind}@{version} towards version {head}; "
        f"register one with @aoserial.migration({kind!r}, {version}, {version + 1})"
    )


def bind(outcome: Record, slots: Mapping[Part, Part]) -> Record:
    """The record with its slots filled by real parts."""
    return replace(outcome, parts={name: part.bind(slots) for name, part in outcome.parts.items()})


def is_header_only(before: Record, after: Record) -> bool:
    """Whether every part of `after` is a view of exactly one of `before` and none is left over.

    Then a file can be brought from one to the other by rewriting its header alone: a safetensors
    file may have no holes, so nothing may be dropped, and a view moves no byte.
    """
    viewed: Counter[Part] = Counter()
    for part in after.parts.values():
        leaf = part.base if isinstance(part, ViewPart) else part
        if not isinstance(leaf, LeafPart):
            return False
        viewed[leaf] += 1
    return viewed == Counter(before.parts.values())
