"""A type's line of versions: who wrote each, what it has, and the step that leaves it. Torch-free.

It is what the tables say: schemas, steps, and the forms of torchao's classes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass

from aoserial.errors import UnknownTypeError
from aoserial.migrations import STEPS, Step, spell
from aoserial.record import Era, spanned
from aoserial.schema import REGISTRY, Field, Registry, Schema
from aoserial.torchao.classes import CLASSES
from aoserial.torchao.eras import era_in_layout, era_of_form

# where a docstring stops telling people what a step does
_REST = re.compile(r"^(?:Raises|Args|Returns|Proved by|Example)\b", re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeTold:
    """A type in a line: its newest version, and the releases that wrote it under any."""

    type: str
    owner: str
    head: int
    written: Era | None
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """What a step asks of `assume`; see `migrations.Question`."""

    name: str
    answers: tuple[str, ...]
    default: str | None
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTold:
    """The step that leaves a version.

    Attributes:
        name: of its function.
        targets: what may come of it, `aoserial.Int8Tensor@1`.
        does: paragraphs on what it does.
        lossy, repairs: as in `migrations.Step`; empty for none.
    """

    name: str
    targets: tuple[str, ...]
    does: tuple[str, ...]
    lossy: str
    repairs: str
    asks: tuple[Asked, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class FieldTold:
    """A field: a `tensor` or an attribute's type, with the dtypes that a tensor may have."""

    name: str
    kind: str
    required: bool
    doc: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """Who wrote a version, in what kind of file, and how a record of it is told."""

    era: Era
    container: str


@dataclass(frozen=True, kw_only=True, slots=True)
class VersionTold:
    """One version.

    Attributes:
        known: whether its schema is; what has no frozen document has no fields to show.
        written: empty where files say the version themselves.
        step: None of a version that is not left.
    """

    version: int
    doc: str
    known: bool
    written: tuple[Written, ...]
    fields: tuple[FieldTold, ...]
    step: StepTold | None


@dataclass(frozen=True, kw_only=True, slots=True)
class History:
    """A type.

    Attributes:
        owner: what declared it.
        kind: `tensor`, or `object` that is an attribute of one.
        head: its newest version.
        paths: under which releases pickled its class; empty of types that files name by id.
        versions: from the first on.
    """

    type: str
    owner: str
    kind: str
    head: int
    doc: str
    paths: tuple[str, ...]
    versions: tuple[VersionTold, ...]


def history(name: str, *, registry: Registry = REGISTRY) -> History:
    """The line of a type's versions.

    Args:
        name: a type id, its last part where no other type has the same, or the path under which
            torchao pickled a class.

    Raises:
        UnknownTypeError: no type, or several, are called so; names those that are near.
    """
    type_id = _resolve(name, registry)
    found = registry[type_id]
    head = found.head
    versions = {*found.documents, head.version, *_with_steps(type_id)}
    return History(
        type=type_id,
        owner=found.owner,
        kind=head.kind,
        head=head.version,
        doc=head.doc,
        paths=tuple(dict.fromkeys(_paths(type_id))),
        versions=tuple(_version(type_id, n, found.at(n)) for n in sorted(versions)),
    )


def types(*, registry: Registry = REGISTRY) -> list[TypeTold]:
    """All types of tensors, plug-ins' included, by id."""
    registry.load_plugins()
    eras: dict[str, list[Era]] = {}
    for row in CLASSES:
        for form in row.forms:
            kind = form.type or row.type
            eras.setdefault(kind, []).append(era_of_form(form, registry.schema(kind, form.version)))
    return [
        TypeTold(
            type=kind,
            owner=found.owner,
            head=found.head.version,
            written=spanned(eras.get(kind, ())),
            doc=found.head.doc,
        )
        for kind, found in sorted(registry.types.items())
        if found.head.kind == "tensor"
    ]


def _resolve(name: str, registry: Registry) -> str:
    if name in registry.types or ("." in name and registry.find(name) is not None):
        return name
    registry.load_plugins()
    near = [kind for kind in registry if kind.rpartition(".")[2] == name]
    near = near or list(dict.fromkeys(kind for kind, path in _pickled() if path == name))
    if len(near) == 1:
        return near[0]
    if not near:
        from difflib import get_close_matches  # 10 ms that only an error needs

        near = get_close_matches(name, registry, n=3, cutoff=0.5)
        hint = f"the nearest are {', '.join(near)}" if near else "`aoserial history` lists them"
        raise UnknownTypeError(f"no type is called {name!r}; {hint}", type=name)
    raise UnknownTypeError(f"{name!r} is several types: {', '.join(sorted(near))}", type=name)


def _version(type_id: str, number: int, schema: Schema | None) -> VersionTold:
    step = STEPS.find(type_id, number)
    return VersionTold(
        version=number,
        doc=schema.doc if schema else "",
        known=schema is not None,
        written=tuple(dict.fromkeys(_written(type_id, number, schema))),
        fields=tuple(map(_field, schema.live_fields)) if schema else (),
        step=_step(step) if step else None,
    )


def _field(field: Field) -> FieldTold:
    kind = " or ".join(field.dtypes) or "any dtype"
    if field.kind == "tensor" and field.shape is not None:
        kind = f"{kind} [{', '.join(field.shape)}]"
    return FieldTold(
        name=field.name,
        kind=f"tensor, {kind}" if field.kind == "tensor" else field.type,
        required=field.required,
        doc=field.doc,
    )


def _step(step: Step) -> StepTold:
    told = inspect.cleandoc(step.function.__doc__ or "")
    if rest := _REST.search(told):
        told = told[: rest.start()]
    paragraphs = (" ".join(lines.split()) for lines in told.split("\n\n"))
    return StepTold(
        name=step.name,
        targets=tuple(map(spell, step.targets)),
        does=tuple(filter(None, paragraphs)),
        lossy=step.lossy,
        repairs=step.repairs,
        asks=tuple(
            Asked(name=one.name, answers=one.answers, default=one.default, why=one.why)
            for one in step.asks
        ),
    )


def _with_steps(type_id: str) -> Iterator[int]:
    return (version for kind, version in STEPS.table if kind == type_id)


def _written(type_id: str, number: int, schema: Schema | None) -> Iterator[Written]:
    for row in CLASSES:
        for form in row.forms:
            if (form.type or row.type, form.version) == (type_id, number):
                yield Written(era=era_of_form(form, schema), container="pickle")
    if schema is not None and (era := era_in_layout(schema)):
        yield Written(era=era, container="safetensors")


def _pickled() -> Iterator[tuple[str, str]]:
    """Type and path of every class, by each of its forms."""
    for row in CLASSES:
        for form in row.forms:
            for path in row.paths:
                yield form.type or row.type, path


def _paths(type_id: str) -> Iterator[str]:
    return (path for kind, path in _pickled() if kind == type_id)
