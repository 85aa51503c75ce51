"""What the code under check declares: its types, enums and steps.

A team's modules import torch when they are imported; this repository's own declarations do not.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from aoserial import torchao
from aoserial.gate.finding import Finding
from aoserial.gate.frozen import Frozen
from aoserial.gate.witness import World, own_steps
from aoserial.migrations import STEPS, Steps
from aoserial.schema import REGISTRY, Registry, Schema, builtin
from aoserial.schema.registry import ENTRY_POINTS, builtin_documents

_OURS = (builtin.OWNER, torchao.OWNER)
_OUR_PREFIXES = ("aoserial.", "torchao.")  # of enums, whose registrations name no owner


@dataclass(frozen=True, kw_only=True)
class Code:
    """The declarations to check, and all that they may name.

    Attributes:
        registry, steps: every declaration in the process.
        types, enums: ids of those to be checked.
        foreign: enums of other packages that the types name; only what breaks files is told of.
        folder: of their frozen documents; None when they were registered without one.
    """

    registry: Registry
    steps: Steps
    types: tuple[str, ...]
    enums: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    folder: Path | None = None

    def head(self, type_id: str) -> Schema:
        return self.registry.types[type_id].head

    def world(self, frozen: Frozen) -> World:
        """The program this code is, its earlier versions as they are frozen."""
        registry = Registry(enums=dict(self.registry.enums))
        for name, kind in self.registry.types.items():
            known = {schema.version: schema for schema in kind.older}
            known |= frozen.schemas.get(name, {})
            older = (one for version, one in known.items() if version < kind.head.version)
            registry.add(kind.head, owner=kind.owner, older=tuple(older))
        return World(registry=registry, steps=own_steps(registry, self.steps))


def our_code(registry: Registry = REGISTRY, steps: Steps = STEPS) -> Code:
    """The types of this package, and those of torchao that it reads."""
    types = tuple(name for name, kind in registry.types.items() if kind.owner in _OURS)
    enums = tuple(name for name in registry.enums if _is_ours(name))
    return Code(
        registry=registry, steps=steps, types=types, enums=enums, folder=builtin_documents()
    )


def code_of(
    modules: Iterable[str], *, entry_points: bool = False, schemas: Path | None = None
) -> tuple[list[Code], list[Finding]]:
    """What modules declare, a `Code` for each folder of documents, and what could not be imported.

    Args:
        modules: names; what they import of their own package counts as well.
        entry_points: also what installed packages declare as `aoserial.types`.
        schemas: the folder, in place of those that the registrations name.
    """
    known = set(REGISTRY.types)
    faults: list[Finding] = []
    loaders = dict(_loaders(modules, entry_points=entry_points))
    for name, load in loaders.items():
        try:
            load()
        except (Exception, SystemExit) as error:  # whatever a module does when it is imported
            message = f"{type(error).__name__}: {error}"
            faults.append(Finding(rule="MODULE_NOT_IMPORTABLE", subject=name, message=message))
    types = [
        name
        for name, kind in REGISTRY.types.items()
        if name not in known or any(f"{kind.owner}.".startswith(f"{one}.") for one in loaders)
    ]
    if not types and not faults:
        where = ", ".join(loaders) or "the installed packages"
        message = "was imported, and registers no type"
        faults.append(Finding(rule="MODULE_NOT_IMPORTABLE", subject=where, message=message))
    folders: dict[Path | None, list[str]] = {}
    for name in types:
        folders.setdefault(schemas or REGISTRY.types[name].frozen, []).append(name)
    return [_code(folder, held) for folder, held in folders.items()], faults


def _code(folder: Path | None, types: list[str]) -> Code:
    packages = {name.partition(".")[0] for name in types}
    named = dict.fromkeys(enum for name in types for enum in enums_named(REGISTRY.types[name].head))
    own = [name for name in REGISTRY.enums if name.partition(".")[0] in packages]
    return Code(
        registry=REGISTRY,
        steps=STEPS,
        types=tuple(types),
        enums=tuple(name for name in {**named, **dict.fromkeys(own)} if not _is_ours(name)),
        foreign=tuple(filter(_is_ours, named)),
        folder=folder,
    )


def enums_named(schema: Schema) -> Iterator[str]:
    """The ids of the enums that the attributes of a schema are of."""
    return _named(schema, "enum:")


def objects_named(schema: Schema) -> Iterator[str]:
    """The ids of the attribute objects that the attributes of a schema are of."""
    return _named(schema, "object:")


def _named(schema: Schema, kind: str) -> Iterator[str]:
    for declared in schema.attributes:
        text = declared.type
        while text.endswith("?") or text.startswith("list["):
            text = text.removesuffix("?").removeprefix("list[").removesuffix("]")
        if text.startswith(kind):
            yield text.removeprefix(kind)


def _is_ours(enum: str) -> bool:
    return enum.startswith(_OUR_PREFIXES)


def _loaders(
    modules: Iterable[str], *, entry_points: bool
) -> Iterator[tuple[str, Callable[[], object]]]:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does: a checkout need not be installed
    for name in modules:
        yield name, lambda name=name: importlib.import_module(name)  # type: ignore[misc]
    if entry_points:
        from importlib import metadata  # slow, and seldom asked for

        for point in metadata.entry_points(group=ENTRY_POINTS):
            yield point.module, point.load
