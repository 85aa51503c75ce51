"""What `convert` writes, format by format."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from aoserial.checkpoint.archives import Archive
from aoserial.checkpoint.contents import Prepared, become
from aoserial.checkpoint.dequantizing import dequantized
from aoserial.checkpoint.rewriting import (
    Format,
    companions_of,
    contents_of,
    format_for,
    of_source,
    shard_groups,
    write_again,
)
from aoserial.checkpoint.saving import write_for_torchao
from aoserial.checkpoint.splitting import target_of
from aoserial.errors import AoserialError, OptionError, UnknownTypeError, raise_all
from aoserial.record.envelope import Contents
from aoserial.storage import shards
from aoserial.storage.progress import Progress
from aoserial.torchao.converting import to_torchao

Target: TypeAlias = Literal["safetensors", "pt", "torchao", "plain"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """A conversion.

    Attributes:
        file: the opened source.
        prepared: its groups of records, and what became of them.
        dst: where to write.
        progress: as of `convert`.
        resume: of a set; its origin is what the new one depends on beside the source.
    """

    file: Archive
    prepared: list[Prepared]
    dst: str | os.PathLike[str]
    progress: Progress | None
    resume: shards.Resume

    def write(self, contents: Contents, format: Format) -> None:  # noqa: A002
        write_again(
            self.file,
            self.prepared,
            contents,
            self.dst,
            format=format,
            progress=self.progress,
            resume=self.resume,
        )


def _write_safetensors(work: Work) -> None:
    work.write(contents_of(work.file, work.prepared), "safetensors")


def _write_pt(work: Work) -> None:
    if isinstance(target_of(work.dst, None), shards.Target):
        raise OptionError(
            "a torch.save archive is one file, whose name DST has to be; a folder or an index gets "
            "safetensors files"
        )
    work.write(contents_of(work.file, work.prepared), "pt")


def _write_plain(work: Work) -> None:
    faults = list(_inert_faults(work.prepared, "so nobody knows what its values are"))
    contents = dequantized(contents_of(work.file, work.prepared), work.prepared, faults)
    raise_all(f"{len(faults)} tensors cannot be made plain", faults)
    work.write(contents, format_for(work.dst))


def _write_torchao(work: Work) -> None:
    """torchao's layout has no ties: a tensor is written under each of its names."""
    faults = list(_inert_faults(work.prepared, "and torchao's layout has only types it knows"))
    theirs = become(work.prepared, to_torchao, faults)
    raise_all(f"{len(faults)} tensors have no place in torchao's layout", faults)
    contents = contents_of(work.file, theirs)
    records = {name: stored.record for name, stored in contents.records.items()}
    plain = dict(contents.plain)
    for name, home in contents.ties.items():
        if home in records:
            records[name] = records[home]
        else:
            plain[name] = plain[home]
    target = target_of(work.dst, None) or work.dst
    divided = isinstance(target, shards.Target) and target.limit is not None
    write_for_torchao(
        target,
        [*records, *plain],
        plain,
        records,
        metadata=contents.metadata,
        groups=[_with_ties(names, contents) for names in shard_groups(work.file) if divided],
        progress=work.progress,
        resume=of_source(work.resume, work.file),
        before_index=companions_of(work.file, target),
    )


def _with_ties(names: Sequence[str], contents: Contents) -> list[str]:
    """The names of a shard, and after each those that are tied to it."""
    tied: dict[str, list[str]] = {}
    for name, home in contents.ties.items():
        tied.setdefault(home, []).append(name)
    return [one for name in names for one in (name, *tied.get(name, ()))]


def _inert_faults(prepared: Sequence[Prepared], why: str) -> Iterator[AoserialError]:
    for one in prepared:
        if one.outcome is None:
            kind = one.group.template.type
            reason = one.reason or f"no type {kind!r:.200} is registered"
            for name in one.group.members:
                yield UnknownTypeError(f"is inert: {reason}, {why}", type=kind).locate(name=name)


WRITERS: dict[Target, Callable[[Work], None]] = {
    "safetensors": _write_safetensors,
    "pt": _write_pt,
    "plain": _write_plain,
    "torchao": _write_torchao,
}
