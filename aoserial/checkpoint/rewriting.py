"""An opened file written again, with its records as they have become: to either format.

Parts go from one file to the other; nothing but what is being written is in memory.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

from aoserial.checkpoint.archives import Archive, SafetensorsArchive
from aoserial.checkpoint.archives.sharded import ShardedArchive
from aoserial.checkpoint.building import migrated_record
from aoserial.checkpoint.companions import bring_along, companions
from aoserial.checkpoint.contents import Prepared
from aoserial.checkpoint.saving import by_name, write_contents
from aoserial.checkpoint.splitting import is_archive_path, target_of
from aoserial.errors import AoserialError, UnsupportedTensorError, raise_all
from aoserial.migrations import Step, spell
from aoserial.migrations.step import Version
from aoserial.record import Catalog
from aoserial.record.envelope import WRITER, Contents, Stored, lay_out, seal
from aoserial.record.pickled import unwrapped
from aoserial.schema import REGISTRY, FrozenMap, fingerprint, without_defaults
from aoserial.storage import Part
from aoserial.storage.pickle import Rebuilt, Value, write_archive
from aoserial.storage.pickle.copying import STAYS, copy_tree
from aoserial.storage.progress import Progress
from aoserial.storage.safetensors import header_in_place, rewrite_header
from aoserial.storage.shards import Resume, Target
from aoserial.tensors.pickling import arguments_of

Format: TypeAlias = Literal["safetensors", "pt"]


def format_for(path: str | os.PathLike[str]) -> Format:
    """What `save` writes to a path of that name."""
    return "pt" if is_archive_path(path) else "safetensors"


def contents_of(file: Archive, prepared: list[Prepared]) -> Contents:
    """All that is in a file, its records as they have become."""
    catalog = file.catalog
    return Contents(
        records={
            name: Stored(
                record=migrated_record(file, one, keys),
                fingerprint=one.group.fingerprint if one.outcome is None else None,
            )
            for one in prepared
            for name, keys in one.group.members.items()
        },
        plain={name: file.parts[key] for name, key in catalog.plain.items()},
        ties=catalog.ties,
        trail=extend_trail(catalog, prepared),
        metadata=catalog.metadata,
        extra=catalog.extra,
    )


def extend_trail(catalog: Catalog, prepared: list[Prepared]) -> list[dict[str, Any]]:
    """The file's trail with one entry for each step of this run."""
    counts: Counter[tuple[Step, Version]] = Counter()
    for one in prepared:
        if one.outcome is None:
            continue
        ends = [step.source for step in one.outcome.steps[1:]]
        ends.append((one.outcome.record.type, one.outcome.record.version))
        for step, end in zip(one.outcome.steps, ends, strict=False):
            counts[step, end] += len(one.group.members)
    trail = list(catalog.trail)
    for (step, end), count in counts.items():
        entry: dict[str, Any] = {
            "step": step.name,
            "from": spell(step.source),
            "to": spell(end),
            "count": count,
            "by": WRITER,
        }
        trail.append(entry | ({"lossy": step.lossy} if step.lossy else {}))
    return trail


def write_again(
    file: Archive,
    prepared: list[Prepared],
    contents: Contents,
    path: str | os.PathLike[str],
    *,
    format: Format,  # noqa: A002
    progress: Progress | None = None,
    resume: Resume | None = None,
) -> None:
    """Writes the contents of an opened file to another, or to a set in a folder, atomically.

    A set becomes a set of the same shards, and the other files of its folder come along: they are
    copied before the index is written, unless there are files of their names.

    From a pickle to a pickle, its own dicts, lists and keys are kept, and all in them that is no
    tensor. To a safetensors file only tensors go.

    Args:
        prepared: how the contents came to be.
        contents: of that file; a name that was a record's may have become a plain tensor's.
        resume: of a set, as of `write_set`; its origin is what the contents depend on beside the
            file.

    Raises:
        UnsupportedTensorError, Faults: tensors that the format cannot hold, before a byte is
            written.
        PathError: a file that should come along cannot be read, before a byte is written.
        SaveError: writing failed.
    """
    if format == "safetensors":
        target = target_of(path, None) or path
        write_contents(
            contents,
            target,
            checksums=_checksums(file),
            progress=progress,
            groups=shard_groups(file) if isinstance(target, Target) and target.limit else (),
            resume=resume and of_source(resume, file),
            before_index=companions_of(file, target),
        )
    else:
        write_archive(path, _tree(file, prepared, contents), progress=progress)


def shard_groups(file: Archive) -> list[list[str]]:
    """The names in each shard of a set; a record is where its first part is."""
    if not isinstance(file, ShardedArchive):
        return []
    groups: dict[str, list[str]] = {name: [] for name in file.shards}
    for group in file.catalog.groups:
        for name, keys in group.members.items():
            groups[file.shard_of(keys[0])].append(name)
    for name, key in file.catalog.plain.items():
        groups[file.shard_of(key)].append(name)
    return [names for names in groups.values() if names]


def companions_of(file: Archive, target: Target | str | os.PathLike[str]) -> Callable[[], object]:
    """What copies the other files in the folder of a set to the folder that another goes to.

    Raises:
        PathError: one of them cannot be read, now that nothing is written.
    """
    beside = os.path.dirname(file.path) or "."
    folder = (target.folder or ".") if isinstance(target, Target) else beside
    along: list[str] = []
    if isinstance(file, ShardedArchive) and os.path.realpath(beside) != os.path.realpath(folder):
        along = companions(beside)
    return partial(bring_along, along, beside, folder)


def of_source(resume: Resume, file: Archive) -> Resume:
    """With an origin that is another as soon as the source is, as far as its files' times tell."""
    folder = os.path.dirname(file.path)
    shards = file.shards if isinstance(file, ShardedArchive) else ()
    told = [resume.origin]
    for path in (file.path, *(os.path.join(folder, name) for name in shards)):
        status = os.stat(path)
        told.append(f"{os.path.basename(path)} {status.st_size} {status.st_mtime_ns}")
    return replace(resume, origin="\n".join(told))


def write_header(file: Archive, contents: Contents) -> bool:
    """Gives an opened file another header in place, when that is all it takes.

    That is when its parts stay as they lie, the new header fits the room of the old one, and the
    file has a digest of its header: half of another one is noticed then by every reader of ours.

    Returns:
        False when it takes more, or the file may not be written to; it is untouched then.

    Raises:
        ChangedWhileReadingError, SaveError: as `rewrite_header`.
    """
    if not isinstance(file, SafetensorsArchive) or not file.catalog.sealed:
        return False  # of a shard the index has a digest
    checksums = _checksums(file)
    if not checksums:
        return False
    sheet = lay_out(contents, REGISTRY)
    found = header_in_place(
        sheet.parts, sheet.metadata, checksums=by_name(sheet.parts, checksums), finish=seal
    )
    if found is None:
        return False
    target, header = found
    return rewrite_header(target.source, target.header.raw, header)


def _checksums(file: Archive) -> dict[Part, int]:
    """CRC-32 of the parts that come with one; of the others it is computed as they are copied."""
    return {file.parts[key]: crc for key, crc in file.checksums.items()}


def _tree(file: Archive, prepared: list[Prepared], contents: Contents) -> Value:
    """What a pickle of these contents holds."""
    if file.tree is None:
        values = {**contents.plain, **_rebuilt(contents.records)}
        return values | {name: values[target] for name, target in contents.ties.items()}
    inert = {name for one in prepared if one.outcome is None for name in one.group.members}
    changed = {name: one for name, one in contents.records.items() if name not in inert}
    become = dict.fromkeys(inert) | _rebuilt(changed)
    become |= {name: contents.plain[name] for name in contents.plain.keys() - file.catalog.plain}
    values = {name: unwrapped(file.values[name]) for name in become}
    copies = {
        id(values[name]): values[name] if new is None else new for name, new in become.items()
    }
    return copy_tree(file.tree, lambda value: copies.get(id(value), STAYS))


def _rebuilt(records: Mapping[str, Stored]) -> dict[str, Value]:
    """Records as what stands for our tensors in a pickle, by name."""
    values: dict[str, Value] = {}
    faults: list[AoserialError] = []
    for name, stored in records.items():
        record, proof = stored.record, stored.fingerprint
        schema = REGISTRY.schema(record.type, record.version)
        if schema is not None:
            needed = FrozenMap(without_defaults(schema, record.attributes, REGISTRY))
            record = replace(record, attributes=needed)
            proof = fingerprint(schema, {*needed, *record.parts})
        if proof is None:
            fault = UnsupportedTensorError(f"is inert, and a {record.type} has no form in a pickle")
            faults.append(fault.locate(name=name))
            continue
        head = arguments_of(record, proof=proof)
        values[name] = Rebuilt(record.type, record.version, (*head, dict(record.parts)))
    raise_all(f"{len(faults)} tensors have no form in a pickle", faults)
    return values
