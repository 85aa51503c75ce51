"""`schema freeze`: writing documents, and the only edit that is ever made to one. Torch-free."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from aoserial.errors import AoserialError, SchemaError, UnknownTypeError, raise_all
from aoserial.gate.code import Code, enums_named
from aoserial.gate.compare import compare, compare_enums
from aoserial.gate.frozen import (
    LOCK_FILE,
    Frozen,
    Lock,
    digest,
    document_path,
    files_in,
    read_frozen,
)
from aoserial.gate.rules import RULES
from aoserial.gate.steps import code_digest
from aoserial.migrations import spell
from aoserial.schema import EnumSchema, Schema, to_document
from aoserial.schema.document import to_text
from aoserial.storage.atomic import AtomicFile

_REFUSED = (
    "FROZEN_SCHEMA_EDITED",
    "FROZEN_SCHEMA_UNREADABLE",
    "FROZEN_SCHEMA_MISPLACED",
    "FROZEN_SCHEMA_MISSING",
)


def freeze(code: Code, ids: Collection[str], *, release: bool = False) -> list[str]:
    """Writes the documents of types and enums, or extends those there are; then the lock.

    A new version gets a document. An existing document is extended where every file of that version
    still reads as it did: by an optional field, an older name, a symbol of an enum, words.

    Args:
        code: what declares them, and where their documents lie.
        ids: of types and enums; an enum that a type names is frozen with it.
        release: also record the steps of these types as they are now; from then on an edit of one
            is a finding.

    Returns:
        the paths that were written, from the folder.

    Raises:
        UnknownTypeError: an id that the code does not declare.
        SchemaError: no folder; a document edited by hand; a change that needs a new version.
            `Faults` when there are several. Nothing is written then.
    """
    folder = code.folder
    if folder is None:
        raise SchemaError("is registered without a folder of documents: say register(…, schemas=…)")
    frozen = read_frozen(files_in(folder), str(folder))
    wanted = {document_path(schema): schema for schema in _declared(code, ids, frozen)}
    raise_all("nothing was frozen", list(_obstacles(wanted, frozen)))
    return _write(folder, wanted, frozen, _released(code, ids) if release else {})


def _declared(code: Code, ids: Collection[str], frozen: Frozen) -> Iterator[Schema | EnumSchema]:
    registry = code.registry
    for name in ids:
        if name in registry.types:
            kind = registry.types[name]
            yield from (kind.head, *kind.older)
            for enum in enums_named(kind.head):
                if enum in registry.enums and (
                    enum not in code.foreign or enum not in frozen.enums
                ):
                    yield registry.enums[enum]
        elif name in registry.enums:
            yield registry.enums[name]
        else:
            raise UnknownTypeError(f"no type or enum {name!r} is registered", type=name)


def _obstacles(
    wanted: Mapping[str, Schema | EnumSchema], frozen: Frozen
) -> Iterator[AoserialError]:
    """Why what is wanted may not be frozen."""
    for fault in frozen.faults:
        concerned = fault.rule in _REFUSED and fault.subject in wanted
        if fault.rule == "FROZEN_SCHEMA_MISSING" and concerned:  # unless it comes back as it was
            last = frozen.lock.documents[fault.subject][-1]
            concerned = digest(_bytes(wanted[fault.subject])) != last
        if concerned or fault.rule == "LOCK_UNREADABLE":
            yield SchemaError(f"{fault.rule}: {fault.message}; {fault.row.fix}").locate(
                file=fault.subject
            )
    known = dict(frozen.readable)
    for path, schema in wanted.items():
        for rule, field, message in _breaking(known.get(path), schema):
            where = f"{field}: " if field else ""
            yield SchemaError(f"{where}{rule}: {message}; {RULES[rule].fix}").locate(
                file=str(schema)
            )


def _breaking(
    old: Schema | EnumSchema | None, new: Schema | EnumSchema
) -> Iterator[tuple[str, str, str]]:
    """The changes of a document that a file of that version would not survive."""
    if isinstance(old, Schema) and isinstance(new, Schema):
        found = compare(old, new)
    elif isinstance(old, EnumSchema) and isinstance(new, EnumSchema):
        found = compare_enums(old, new)
    else:
        return
    for one in found:
        if RULES[one.rule].counts_in("read"):
            yield one.rule, one.field, one.message


def _write(
    folder: Path,
    wanted: Mapping[str, Schema | EnumSchema],
    frozen: Frozen,
    steps: Mapping[str, str],
) -> list[str]:
    """Writes what differs, the lock last."""
    written: list[str] = []
    documents = dict(frozen.lock.documents)
    for path, schema in wanted.items():
        data = _bytes(schema)
        if frozen.digests.get(path) != digest(data):
            _replace(folder / path, data)
            written.append(path)
        documents[path] = _appended(documents.get(path, ()), digest(data))
    released = dict(frozen.lock.steps)
    for subject, code in steps.items():
        released[subject] = _appended(released.get(subject, ()), code)
    lock = Lock(documents=documents, steps=released)
    if lock != frozen.lock:
        _replace(folder / LOCK_FILE, lock.text().encode())
        written.append(LOCK_FILE)
    return written


def _bytes(schema: Schema | EnumSchema) -> bytes:
    return to_text(to_document(schema)).encode()


def _appended(digests: tuple[str, ...], last: str) -> tuple[str, ...]:
    return digests if digests[-1:] == (last,) else (*digests, last)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with AtomicFile(path, durability="rename") as file:
        file.write(data)


def _released(code: Code, ids: Collection[str]) -> dict[str, str]:
    return {
        spell(source): text
        for source, step in code.steps.table.items()
        if source[0] in ids and (text := code_digest(step))
    }
