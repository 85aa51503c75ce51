"""Migration steps: one change of one type's schema, as one pure function. Torch-free.

A step takes a record at one version and returns it at the next; it never sees the live class, so
it outlives it. A step may also change the type, when one type became several or another's work was
taken over; then `targets` lists all it may become and the record's fields decide.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aoserial.errors import SchemaError

Version = tuple[str, int]  # type id, version
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Question:
    """What a file cannot tell, and a step needs to know; `assume={name: answer}` settles it.

    Attributes:
        name: of the option.
        answers: those that are possible.
        default: what is taken, and reported, when nobody answers; None refuses the record instead.
        why: one sentence.
        concerns: whether the answer makes a difference to a record; a pure function. To a record
            that it does not concern, a question without a default is not put.
    """

    name: str
    answers: tuple[str, ...]
    default: str | None
    why: str
    concerns: Callable[[Any], bool] = lambda _: True


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step.

    Attributes:
        source: the type and version it takes.
        targets: those it may return.
        function: Record → Record for a tensor type, Nested → Nested for an attribute object. Pure:
            parts are only viewed or computed with, their values never looked at.
        lossy: what it loses, for people; empty when it keeps everything.
        asks: questions whose answers the function takes by keyword.
        repairs: what a reader without this step gets wrong and no error says, for people.
    """

    source: Version
    targets: tuple[Version, ...]
    function: Callable[..., Any]
    lossy: str = ""
    asks: tuple[Question, ...] = ()
    repairs: str = ""

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def owner(self) -> str:
        return f"{self.function.__module__}.{self.function.__qualname__}"

    def __str__(self) -> str:
        return f"{self.name} ({spell(self.source)} → {' | '.join(map(spell, self.targets))})"


@dataclass
class Steps:
    """The table of steps: at most one from any (type, version)."""

    table: dict[Version, Step] = field(default_factory=dict)

    def add(self, step: Step) -> None:
        """Registers a step; the same function registered again replaces itself.

        Raises:
            SchemaError: a fork, or a step that skips a version.
        """
        kind, version = step.source
        for target, target_version in step.targets:
            if target == kind and target_version != version + 1:
                raise SchemaError(f"{step} must lead to version {version + 1}")
        taken = self.table.get(step.source)
        if taken is not None and taken.owner != step.owner:
            raise SchemaError(f"{spell(step.source)} already has the step {taken.owner}")
        self.table[step.source] = step

    def find(self, type_id: str, version: int) -> Step | None:
        return self.table.get((type_id, version))

    @property
    def questions(self) -> dict[str, Question]:
        """What the steps ask, by the name of the option."""
        return {question.name: question for step in self.table.values() for question in step.asks}


STEPS = Steps()


def migration(
    type_id: str,
    source: int,
    target: int,
    *,
    becomes: str | tuple[str, ...] | None = None,
    lossy: str = "",
    asks: tuple[Question, ...] = (),
    repairs: str = "",
    steps: Steps = STEPS,
) -> Callable[[Function], Function]:
    """Registers the decorated function as the step of `type_id` from `source` to `target`.

    Args:
        becomes: the type id, or all the ids, it turns into, at version `target` unless the id says
            another (`"acme.Int4Tensor@3"`); the same type if not given, and then `target` must be
            `source + 1`.
        lossy: what the step loses, one line; `migrate` then needs to be told that it may.
        asks: what a file cannot tell; the function takes the answers by keyword.
        repairs: the silent break that the step is for, one line: what was meant, and what a reader
            would take it for. `aoserial history` shows it.

    Example:
        >>> from aoserial.migrations import Steps, migration
        >>> @migration("acme.Int4Tensor", 1, 2, steps=Steps())
        ... def name_the_zero_domain(record):
        ...     return record.at(2).set(zero_domain="int")
    """
    kinds = (type_id,) if becomes is None else (becomes,) if isinstance(becomes, str) else becomes

    def register(function: Function) -> Function:
        targets = tuple(_version(kind, target) for kind in kinds)
        step = Step(
            source=(type_id, source),
            targets=targets,
            function=function,
            lossy=lossy,
            asks=asks,
            repairs=repairs,
        )
        steps.add(step)
        return function

    return register


def _version(text: str, usual: int) -> Version:
    """`acme.Int4Tensor@2`, or an id alone, which means the version that is usual."""
    kind, _, version = text.partition("@")
    if version and not (version.isascii() and version.isdecimal() and int(version)):
        raise SchemaError(f"{text!r} is no type id with a version: expected acme.Int4Tensor@2")
    return kind, int(version or usual)


def spell(version: Version) -> str:
    """`acme.Int4Tensor@2`."""
    return f"{version[0]}@{version[1]}"
