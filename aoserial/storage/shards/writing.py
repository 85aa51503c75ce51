"""A set of shards, written so that its index always names a whole one. Torch-free.

Shards go first, each under a name that nothing names yet, then the index by rename: that is the
moment when the checkpoint changes. What only the old index named is removed last. A crash at any
point leaves files that no index names, never an index with the wrong files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from aoserial.errors import locating
from aoserial.storage.atomic import AtomicFile, Durability
from aoserial.storage.part import Part
from aoserial.storage.progress import Progress
from aoserial.storage.safetensors.writer import (
    Finish,
    Planned,
    plan_safetensors,
    write_planned,
)
from aoserial.storage.shards.filling import Unnamed, old_set_stays, write_shards
from aoserial.storage.shards.generations import Generation, drop_index, remove_old
from aoserial.storage.shards.index import Index, ShardFacts, check_count, render_index
from aoserial.storage.shards.names import ShardName
from aoserial.storage.shards.places import refuse_links
from aoserial.storage.shards.resuming import (
    Journal,
    Resume,
    begun,
    journal_path,
    read_journal,
    remove_journal,
    work_of,
)
from aoserial.storage.shards.target import Target, make_folder

Shard = tuple[Mapping[str, Part], Mapping[str, str]]  # parts by key, metadata of the file


def write_set(
    target: Target,
    shards: Sequence[Shard],
    *,
    writer: str,
    metadata: Mapping[str, str],
    checksums: Mapping[str, int] | None = None,
    finish: Finish | None = None,
    durability: Durability = "fsync",
    progress: Progress | None = None,
    resume: Resume | None = None,
    before_index: Callable[[], object] = lambda: None,
) -> None:
    """Writes a checkpoint of one file or several, and the index of these.

    Args:
        shards: what goes into each file.
        writer: for people, in the index.
        metadata: strings for the index; each shard has its own.
        checksums: the CRC-32 of parts by key, as of `write_safetensors`, of all shards.
        finish, durability, progress: as of `write_safetensors`.
        resume: keep a journal of finished shards, and perhaps go on with one. The set comes out as
            if it had been written at once.
        before_index: called when all shards are written and no index names them yet.

    Raises:
        TensorNameError, UnsupportedTensorError, LimitError, PathError: before a byte is written.
        SaveError: writing failed; the old checkpoint is whole unless `state` says otherwise.
    """
    check_count(len(shards))
    planned = [plan_safetensors(parts, described) for parts, described in shards]
    known = checksums or {}
    with locating(file=target.folder):
        before = Generation.of(target.folder, target.index)
        if len(planned) == 1 and target.single not in before.live:
            refuse_links(target.folder, [target.single, target.index])
            make_folder(target)
            with old_set_stays():
                before_index()
            write_planned(
                os.path.join(target.folder, target.single),
                planned[0],
                checksums=known,
                finish=finish,
                durability=durability,
                progress=progress,
            )
            drop_index(target, before, durability)
            _clear(target, before, "", [target.single])
            return
        names = _names(target, len(planned), before)
        journal = _journal(target, resume, planned, metadata)
        if journal is not None:
            names = _gone_on(journal, names, before)
        refuse_links(target.folder, [*map(str, names), target.index])
        index = Index(
            weight_map={},
            total_bytes=sum(part.nbytes for one in planned for part in one.parts.values()),
            metadata=dict(metadata),
        )
        blank = ShardFacts(nbytes=0, sha256=_BLANK, header_sha256=_BLANK)
        for name, (parts, _) in zip(names, shards, strict=True):
            _enter(index, str(name), parts, blank)
        render_index(index, writer=writer)  # for what it refuses
        index.weight_map.clear()
        index.facts.clear()
        make_folder(target)
        with Unnamed(target, journal) as unnamed:
            with old_set_stays():
                written = write_shards(
                    target,
                    names,
                    planned,
                    unnamed=unnamed,
                    journal=journal,
                    checksums=known,
                    finish=finish,
                    durability=durability,
                    progress=progress,
                )
                before_index()
            for number, (parts, _) in enumerate(shards):
                final, facts = written[number]
                _enter(index, final, parts, facts)
            raw = render_index(index, writer=writer)
            path = os.path.join(target.folder, target.index)
            with AtomicFile(path, durability=durability, size=len(raw)) as file:
                file.write(raw)
        _clear(target, before, target.index, index.facts)


_BLANK = "0" * 64  # as long as any digest


def _clear(target: Target, before: Generation, index: str, written: Iterable[str]) -> None:
    """Removes what nothing needs any more, once the set is whole."""
    has_journal = os.path.lexists(journal_path(target))
    left = begun(target) if has_journal else ()
    remove_old(target, before, index=index, written=written, begun=left)
    if has_journal:  # last: until then whoever goes on finds all that was done
        remove_journal(target)


def _names(target: Target, count: int, before: Generation) -> list[ShardName]:
    """The names of the shards; with a place for digests if one of them is taken."""
    names = [
        ShardName(stem=target.stem, number=number, count=count) for number in range(1, count + 1)
    ]
    if before.live.isdisjoint(map(str, names)):
        return names
    return [replace(name, digest=_BLANK) for name in names]


def _journal(
    target: Target, resume: Resume | None, planned: Sequence[Planned], metadata: Mapping[str, str]
) -> Journal | None:
    if resume is None:
        return None
    work = work_of(resume.origin, (one.header for one in planned), metadata)
    found = read_journal(target, work) if resume.go_on else None
    return found or Journal(path=journal_path(target), work=work, names=())


def _gone_on(journal: Journal, names: list[ShardName], before: Generation) -> list[ShardName]:
    """The names that a first attempt began with, unless files that live now have them."""
    begun = [ShardName.parse(name) for name in journal.names]
    whole = len(journal.finished) == len(names)  # then nothing is written over
    usable = [name for name in begun if name and (whole or str(name) not in before.live)]
    if len(usable) == len(names):
        return usable
    journal.names, journal.finished = [str(name) for name in names], {}
    return names


def _enter(index: Index, name: str, parts: Mapping[str, Part], facts: ShardFacts) -> None:
    index.weight_map.update(dict.fromkeys(parts, name))
    index.facts[name] = facts
