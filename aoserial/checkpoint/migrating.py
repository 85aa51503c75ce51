"""A file rewritten at the heads of its types: `migrate`."""

from __future__ import annotations

import os
from collections.abc import Mapping

from aoserial.checkpoint.archives import open_archive
from aoserial.checkpoint.archives.sharded import ShardedArchive
from aoserial.checkpoint.contents import prepare, upgrader_for
from aoserial.checkpoint.planning import MigrationPlan, parse_version, plan_of
from aoserial.checkpoint.rewriting import Format, contents_of, format_for, write_again, write_header
from aoserial.errors import LossyMigrationError, MigrationError, UnsupportedOperationError, locating
from aoserial.storage.progress import Progress
from aoserial.storage.shards import Resume


def migrate(
    src: str | os.PathLike[str],
    dst: str | os.PathLike[str] | None = None,
    *,
    to: str | None = None,
    in_place: bool = False,
    resume: bool = False,
    allow_lossy: bool = False,
    assume: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> MigrationPlan:
    """Writes the checkpoint at `src` to `dst` with its records at the heads of their types.

    Parts stream from one file to the other: at most two are in memory. `src` is never changed
    unless `in_place`. Then the new file replaces it whole, by rename; or, where no byte of its data
    would change and the new header fits the room of the old one, that alone is written over, with
    a journal beside the file: a crash leaves the old file or the new one for whoever opens it here
    next. A program that does not know the journal may see half a header meanwhile.

    A file that has nothing to migrate comes out with equal bytes.

    As in `save`, a `dst` that ends in .pt, .pth, .bin or .ckpt gets a `torch.save` archive, any
    other a safetensors file, which has no place for what is no tensor, and a folder one or a set of
    these. `in_place` keeps the format; a set is its old self until the new one is whole. A set
    becomes one of the same shards, and what else is in its folder comes along to the new one.

    Args:
        dst: the file to write; may be left out with `in_place`.
        to: `TYPE@VERSION` to stop at.
        resume: go on with a set of shards that was begun and not ended: those that are finished,
            and still what was written, stay. The set comes out as it would have at once. One file
            is always written anew.
        allow_lossy: let steps run that lose something.
        assume: answers to what a file cannot tell.
        progress: called with bytes done and bytes in all.

    Returns:
        The plan that was carried out.

    Raises:
        LossyMigrationError: a step would lose something, and `allow_lossy` was not said.
        AoserialError: whatever `plan` and `save` raise.
    """
    upgrader = upgrader_for(assume)
    if (dst is None) != in_place:
        raise MigrationError("say either where to write, or that the file is to be replaced")
    with open_archive(src) as file, locating(file=os.fspath(src)):
        prepared = prepare(file.catalog, upgrader, stop=parse_version(to))
        todo = plan_of(file, prepared)
        if todo.lossy and not allow_lossy:
            raise LossyMigrationError(
                f"{'; '.join(todo.lossy)}. Say allow_lossy to run it all the same"
            )
        pickles = isinstance(file, ShardedArchive) and file.tree is not None
        if in_place and pickles and todo.pending:
            raise UnsupportedOperationError(
                "a set of pickled shards is not replaced: say where to write"
            )
        if not in_place or todo.pending:
            contents = contents_of(file, prepared)
            if in_place and write_header(file, contents):
                return todo
            kept: Format = "safetensors" if file.tree is None else "pt"
            write_again(
                file,
                prepared,
                contents,
                file.path if dst is None else dst,
                format=kept if dst is None else format_for(dst),
                progress=progress,
                resume=Resume(origin=f"{to} {sorted((assume or {}).items())}", go_on=resume),
            )
    return todo
