"""A folder of frozen documents as it lies on disk or in a commit: what it says, and its faults.

`<type>/<version>.json`, `<enum>/enum.json`, and `lock.json`, which lists the SHA-256 of every form
that each document had, the present one last. Torch-free.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aoserial.errors import AoserialError, EnvelopeError
from aoserial.gate.finding import Finding
from aoserial.record.fields import ARRAY, expect, parse_object, strings, take, take_or
from aoserial.schema import EnumSchema, Schema
from aoserial.schema.description import ENUM_FILE
from aoserial.schema.document import read_document

LOCK_FILE = "lock.json"
LOCK_VERSION = 1
_STEP = re.compile(r"[\w.]+@[1-9][0-9]*", re.ASCII)
Files = Mapping[str, bytes]  # path from the folder, with / → contents


@dataclass(frozen=True, kw_only=True)
class Lock:
    """The digests of every form that documents and released steps had, oldest first.

    Attributes:
        documents: path of the document → digests.
        steps: `acme.T@1` → digests of the code of the step that leaves it.
    """

    documents: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def text(self) -> str:
        tables = {"documents": self.documents, "steps": self.steps}
        plain = {
            name: {key: list(table[key]) for key in sorted(table)} for name, table in tables.items()
        }
        return json.dumps({"lock": LOCK_VERSION, **plain}, indent=1) + "\n"


@dataclass(kw_only=True)
class Frozen:
    """What a folder of documents says.

    Attributes:
        where: the folder, for people.
        schemas: type → version → schema, of the documents that are as they were written.
        enums: by id, likewise.
        digests: path of each document → the SHA-256 of its bytes.
        faults: what is wrong with the folder itself.
    """

    where: str
    schemas: dict[str, dict[int, Schema]] = field(default_factory=dict)
    enums: dict[str, EnumSchema] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)
    faults: list[Finding] = field(default_factory=list)

    @property
    def readable(self) -> Iterator[tuple[str, Schema | EnumSchema]]:
        """The documents that could be read, with their paths."""
        for versions in self.schemas.values():
            yield from ((document_path(schema), schema) for schema in versions.values())
        yield from ((document_path(enum), enum) for enum in self.enums.values())


def document_path(schema: Schema | EnumSchema) -> str:
    """Where in a folder the document of a schema or an enum lies."""
    last = ENUM_FILE if isinstance(schema, EnumSchema) else f"{schema.version}.json"
    return f"{schema.type}/{last}"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def files_in(folder: Path) -> dict[str, bytes]:
    """The JSON files of a folder of documents."""
    paths = [folder / LOCK_FILE, *sorted(folder.glob("*/*.json"))]
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in paths if path.is_file()
    }


def read_frozen(files: Files, where: str) -> Frozen:
    """What the files of a folder say; every fault of every file is noted, none is raised."""
    frozen = Frozen(where=where)
    for path, data in files.items():
        if path != LOCK_FILE:
            frozen.digests[path] = digest(data)
            _take(path, data, frozen)
    _take_lock(files.get(LOCK_FILE), frozen)
    return frozen


def _take(path: str, data: bytes, frozen: Frozen) -> None:
    try:
        schema = read_document(data)
    except AoserialError as error:
        frozen.faults.append(_fault("FROZEN_SCHEMA_UNREADABLE", path, str(error), frozen))
        return
    if (expected := document_path(schema)) != path:
        message = f"is the document of {schema}, which belongs at {expected}"
        frozen.faults.append(_fault("FROZEN_SCHEMA_MISPLACED", path, message, frozen))
    elif isinstance(schema, EnumSchema):
        frozen.enums[schema.type] = schema
    else:
        frozen.schemas.setdefault(schema.type, {})[schema.version] = schema


def _take_lock(data: bytes | None, frozen: Frozen) -> None:
    try:
        if data is None:
            if frozen.digests:
                raise EnvelopeError("is not there, so nothing says what the documents were")
            return
        lock = parse_object(data.decode(), LOCK_FILE)
        if take(lock, "lock", int, LOCK_FILE) != LOCK_VERSION:
            raise EnvelopeError(f"is of version {lock['lock']}, expected {LOCK_VERSION}")
        documents, steps = _digests(lock, "documents"), _digests(lock, "steps")
        for subject in steps:
            if not _STEP.fullmatch(subject):
                raise EnvelopeError(f"{subject!r} is no step of {LOCK_FILE}, as acme.T@1")
        frozen.lock = Lock(documents=documents, steps=steps)
    except (EnvelopeError, UnicodeDecodeError) as error:
        frozen.faults.append(_fault("LOCK_UNREADABLE", LOCK_FILE, str(error), frozen))
        return
    for path in frozen.digests.keys() | frozen.lock.documents.keys():
        if fault := _against_lock(path, frozen):
            frozen.faults.append(fault)
            if fault.rule == "FROZEN_SCHEMA_EDITED":
                _forget(path, frozen)
    frozen.faults.sort(key=lambda fault: fault.subject)


def _forget(path: str, frozen: Frozen) -> None:
    """Leaves what a document says aside: it was told that it is not to be relied on."""
    name, _, last = path.partition("/")
    if last == ENUM_FILE:
        del frozen.enums[name]
        return
    del frozen.schemas[name][int(last.removesuffix(".json"))]
    if not frozen.schemas[name]:
        del frozen.schemas[name]


def _digests(lock: Mapping[str, Any], key: str) -> dict[str, tuple[str, ...]]:
    empty: dict[str, Any] = {}
    table = take_or(lock, key, empty, LOCK_FILE)
    what = f"an entry of {key!r} of {LOCK_FILE}"
    found = {path: tuple(strings(expect(row, ARRAY, what), what)) for path, row in table.items()}
    for path, row in found.items():
        if not row:
            raise EnvelopeError(f"{path!r} of {LOCK_FILE} lists no digest")
    return found


def _against_lock(path: str, frozen: Frozen) -> Finding | None:
    """One document against its entry in the lock; a file that cannot be read was told of before."""
    found, known = frozen.digests.get(path), frozen.lock.documents.get(path, ())
    if found is None:
        message = f"{LOCK_FILE} lists it, and there is no such file"
        return _fault("FROZEN_SCHEMA_MISSING", path, message, frozen)
    if any(fault.subject == path for fault in frozen.faults):
        return None
    if not known:
        message = f"{LOCK_FILE} does not list it"
        return _fault("FROZEN_SCHEMA_NOT_LOCKED", path, message, frozen)
    if found == known[-1]:
        return None
    older = "an earlier form of it" if found in known else "edited by hand"
    message = f"its SHA-256 is {found[:12]}…, {LOCK_FILE} says {known[-1][:12]}…: it is {older}"
    return _fault("FROZEN_SCHEMA_EDITED", path, message, frozen)


def _fault(rule: str, path: str, message: str, frozen: Frozen) -> Finding:
    return Finding(rule=rule, subject=path, message=message, path=f"{frozen.where}/{path}")
