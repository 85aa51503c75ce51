"""`schema draft`: a breaking edit becomes the next version, with its step begun. Torch-free.

In this order, since the first needs the code that the edit replaced: goldens of the old version,
the document of the new one, the skeleton of the step.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from aoserial.errors import OptionError, SchemaError, UnknownTypeError
from aoserial.gate.code import Code
from aoserial.gate.compare import compare
from aoserial.gate.freezing import freeze
from aoserial.gate.frozen import files_in, read_frozen
from aoserial.gate.lineage import replaced_version
from aoserial.gate.rules import RULES
from aoserial.gate.skeleton import skeleton
from aoserial.migrations.step import Version
from aoserial.schema import Schema
from aoserial.storage.atomic import AtomicFile

# records goldens of a type's version with the code of a commit, and returns where they are
Recorder = Callable[[str, Version], list[Path]]


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What was drafted.

    Attributes:
        old, new: the schemas on both sides of the step.
        written: documents, from the folder.
        step: the file with the step's skeleton; None where one is there already.
        goldens: the golden files of the old version.
        notes: what is left to do, each a sentence.
    """

    old: Schema
    new: Schema
    written: list[str]
    step: Path | None
    goldens: list[Path]
    notes: list[str]


def draft(
    code: Code,
    type_id: str,
    *,
    against: str = "HEAD",
    record: Recorder | None = None,
    target: Path | None = None,
) -> Draft:
    """Freezes a type as it is now as its next version, and begins the step that leads there.

    Args:
        code: what declares the type, and the folder of its documents.
        against: the commit whose code still writes the old version.
        record: records goldens of it, and has nothing to do where there are some; without one, a
            note says that it is left to do.
        target: the file for the skeleton; beside the class unless given.

    Raises:
        UnknownTypeError: no such type.
        SchemaError: the type has no document yet, or nothing about it needs a version.
        OptionError: no such commit, or the skeleton's file is there already.
    """
    if type_id not in code.types:
        raise UnknownTypeError(f"no type {type_id!r} is declared there", type=type_id)
    if code.folder is None:
        raise SchemaError("is registered without a folder of documents: say register(…, schemas=…)")
    kind = code.registry.types[type_id]
    documents = read_frozen(files_in(code.folder), str(code.folder)).schemas.get(type_id, {})
    old = _last(documents, kind.head)
    new = _next(old, kind.head)
    notes = []
    if kind.head.version != new.version:
        notes.append(f"say version={new.version} where {type_id} is registered")
    path = None
    if code.steps.find(type_id, old.version) is None:
        path = target or _beside(kind.owner, old)
        if path.exists():
            raise OptionError(f"{path} is there already")
        notes.append(
            f"write the body of the step in {path.name}, and import that file with the class"
        )
    goldens: list[Path] = []
    if record is not None:
        goldens = record(against, (type_id, old.version))
    else:
        notes.append(f"record a golden of {old} with the code of {against}, before it is gone")
    kind_now = replace(kind, head=new, older=())
    registry = replace(code.registry, types={**code.registry.types, type_id: kind_now})
    written = freeze(replace(code, registry=registry), [type_id])
    if path is not None:
        with AtomicFile(path, durability="rename") as file:
            file.write(skeleton(old, new).encode())
    return Draft(old=old, new=new, written=written, step=path, goldens=goldens, notes=notes)


def _last(documents: dict[int, Schema], head: Schema) -> Schema:
    below = [version for version in documents if version <= head.version]
    if not below:
        raise SchemaError(f"{head} has no document yet: aoserial schema freeze {head.type}")
    return documents[max(below)]


def _next(old: Schema, head: Schema) -> Schema:
    """The head as the version after `old`."""
    if head.version > old.version + 1:
        raise SchemaError(f"{head} follows version {old.version}: versions go up by one")
    breaking = [one for one in compare(old, head) if RULES[one.rule].bump == "version"]
    if head.version == old.version and not breaking:
        raise SchemaError(
            f"nothing about {head} needs a new version: aoserial schema freeze {head.type}"
        )
    new = replaced_version(head, old.version + 1)
    assert new is not None  # a field may speak of an earlier version, and this one is later
    return new


def _beside(owner: str, old: Schema) -> Path:
    """A file beside the class for the step; in the working folder where there is no class."""
    module = owner.rpartition(".")[0]
    while module and module not in sys.modules:
        module = module.rpartition(".")[0]
    home = getattr(sys.modules.get(module), "__file__", None)
    folder = Path(home).parent if home and module else Path.cwd()
    name = "".join(f"_{c.lower()}" if c.isupper() else c for c in old.type.rpartition(".")[2])
    return folder / f"{name.strip('_')}_from_{old.version}.py"
