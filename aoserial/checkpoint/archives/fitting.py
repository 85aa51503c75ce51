"""An index held against the shards that it names. Torch-free."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping

from aoserial.checkpoint.archives.archive import FileArchive
from aoserial.checkpoint.archives.safetensors import SafetensorsArchive
from aoserial.errors import AoserialError, CollisionError, IntegrityError, ShardIndexError
from aoserial.storage.pickle import StateDict
from aoserial.storage.shards import Index


def fit_faults(index: Index, shards: Mapping[str, FileArchive]) -> Iterator[AoserialError]:
    """A fault for all that an index says of the opened shards and that is not so.

    Args:
        shards: those that could be opened, by name; of the others nothing is said.
    """
    if len({type(archive) for archive in shards.values()}) > 1:
        formats = ", ".join(f"{name} is {one.format}" for name, one in list(shards.items())[:4])
        yield ShardIndexError(f"the shards of one set must be of one format: {formats}")
        return
    for name, archive in shards.items():
        for fault in _unlike_facts(index, name, archive):
            yield fault.locate(shard=name)
    holders: dict[str, list[str]] = {}
    for name, archive in shards.items():
        for key in archive.listed:
            holders.setdefault(key, []).append(name)
    yield from _of_keys(index, holders, shards)


def _of_keys(
    index: Index, holders: Mapping[str, list[str]], shards: Mapping[str, FileArchive]
) -> Iterator[AoserialError]:
    for key, names in holders.items():
        said = index.weight_map.get(key)
        if len(names) > 1:
            yield CollisionError(
                f"is in {len(names)} shards, {', '.join(names)}, and they cannot all be right"
            ).locate(name=key)
        elif said is None:
            yield ShardIndexError("is in this shard, and the index does not know it").locate(
                shard=names[0], name=key
            )
        elif said != names[0]:
            yield ShardIndexError(f"is in this shard, the index says it is in {said}").locate(
                shard=names[0], name=key
            )
    others = {name: _others(archive) for name, archive in shards.items()}
    for key, name in index.weight_map.items():
        if name in shards and key not in holders and key not in others[name]:
            yield ShardIndexError("the index says it is in this shard, and no shard has it").locate(
                shard=name, name=key
            )


def _others(archive: FileArchive) -> frozenset[object]:
    """What a pickle's dict holds beside tensors, which an index may list as well."""
    tree = archive.tree
    return frozenset(tree) if isinstance(tree, dict | StateDict) else frozenset()


def _unlike_facts(index: Index, name: str, archive: FileArchive) -> Iterator[IntegrityError]:
    facts = index.facts.get(name)
    if facts is None:
        return
    if archive.nbytes != facts.nbytes:
        yield IntegrityError(
            f"has {archive.nbytes} bytes, the index says {facts.nbytes}: it is not the file that "
            f"was written with this index"
        )
    elif isinstance(archive, SafetensorsArchive):
        found = hashlib.sha256(archive.header.raw).hexdigest()
        if found != facts.header_sha256:
            yield IntegrityError(
                "its header is not the one that was written with this index: a file of another "
                "generation, or edited"
            )
