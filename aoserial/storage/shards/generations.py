"""What is already in the folder that a set is written to: what stays, what may go. Torch-free."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from aoserial.errors import AoserialError, PathError, SaveError
from aoserial.storage.atomic import Durability
from aoserial.storage.disk import sync_folder
from aoserial.storage.shards.index import Index, read_index
from aoserial.storage.shards.names import INDEX_SUFFIX, SUFFIX, ShardName
from aoserial.storage.shards.target import Target
from aoserial.storage.source import Source

# A file that we may remove is one beside the index, whatever the index calls it
_PLAIN_NAME = re.compile(r"(?!\.{1,2}\Z)[^/\0]+")


@dataclass(frozen=True, kw_only=True)
class Generation:
    """The files of a folder before a set is written to it.

    Attributes:
        present: all names in the folder.
        live: what its indexes name, ours included; all names, when one of them cannot be read.
        own: what the index that is going to be replaced names; empty when there is none.
        readable: whether all indexes could be read.
    """

    present: frozenset[str]
    live: frozenset[str]
    own: frozenset[str]
    readable: bool

    @classmethod
    def of(cls, folder: str, index: str) -> Generation:
        """Of a folder that may not be there yet, and the name of an index in it."""
        present: frozenset[str] = frozenset()
        try:
            present = frozenset(os.listdir(folder))
        except FileNotFoundError:
            pass
        except OSError as error:
            raise PathError(
                f"a folder is needed here: {error.strerror}", errno=error.errno
            ) from None
        live: set[str] = set()
        own: frozenset[str] = frozenset()
        readable = True
        for name in present:
            if not name.endswith(INDEX_SUFFIX):
                continue
            found = _read(os.path.join(folder, name))
            readable = readable and found is not None
            named = present if found is None else frozenset(found.weight_map.values())
            live |= named
            if name == index and found is not None:
                own = named
        return cls(present=present, live=frozenset(live), own=own, readable=readable)


def remove_old(
    target: Target,
    before: Generation,
    *,
    index: str,
    written: Iterable[str],
    begun: Iterable[str],
) -> None:
    """Removes what the set just written has replaced, once nothing names it any more.

    That is: what the old index named; the file of a checkpoint that was not split; and shards that
    were left by a save that did not end, with digests in their names or in its journal.

    Args:
        index: the name of the new index; empty when the set is one file without one.
        written: the names of the new files.
        begun: the shards that a journal names.
    """
    try:
        now = Generation.of(target.folder, index)
    except PathError:
        return  # the checkpoint is saved; what is left over harms nobody
    if not now.readable:
        return  # an index that we do not understand may name any of them
    old = {*before.own, target.single, *begun}
    old |= {name for name in now.present if _is_left_over(name, target.stem)}
    for name in sorted((old & now.present) - now.live - set(written)):
        if _PLAIN_NAME.fullmatch(name):
            with suppress(OSError):
                os.unlink(os.path.join(target.folder, name))


def drop_index(target: Target, before: Generation, durability: Durability) -> None:
    """Takes the old index away: until then the old set is what the folder holds."""
    if target.index not in before.present:
        return
    try:
        os.unlink(os.path.join(target.folder, target.index))
        if durability != "rename":
            sync_folder(target.folder or ".")
    except OSError as error:
        raise SaveError(
            f"{target.single} was saved, but {target.index} cannot be removed: {error.strerror}",
            errno=error.errno,
            state="renamed, not known durable",
        ) from error


def _is_left_over(name: str, stem: str) -> bool:
    parsed = ShardName.parse(name)
    return (
        parsed is not None
        and parsed.stem == stem
        and parsed.suffix == SUFFIX
        and parsed.digest != ""
    )


def _read(path: str) -> Index | None:
    try:
        with Source.open(path, mapped=False) as source:
            return read_index(source)
    except AoserialError:
        return None
