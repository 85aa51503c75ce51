"""What a file holds, from its header alone: `inspect`. Torch-free, loads no plug-ins."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.contents import quiet_upgrader
from aoserial.errors import AoserialError, locating
from aoserial.migrations import Upgrader, spell
from aoserial.record import Era, Group, Record, shared


@dataclass(frozen=True, kw_only=True, slots=True)
class TypeSummary:
    """The tensors of one type and version.

    Attributes:
        type: the type id; `torch.Tensor` for plain tensors.
        version: as stored; None for plain tensors.
        head: the newest version known here; None when the type is not known, or plain.
        becomes: what loading makes of it (`aoserial.Int8Tensor@1`), when that is something else.
        count: of tensors.
        weights: of elements, all tensors together.
        nbytes: of their parts.
        problem: why these tensors would not load, empty when they would.
        era: the releases among which all of them were written, and what says so; None where the
            file has versions, and where nothing tells.
    """

    type: str
    version: int | None
    head: int | None
    becomes: str | None
    count: int
    weights: int
    nbytes: int
    problem: str = ""
    era: Era | None = None

    @property
    def bits_per_weight(self) -> float:
        """Bits of storage for each element, scales and all; 0 for no elements."""
        return 8 * self.nbytes / self.weights if self.weights else 0.0


@dataclass(frozen=True, kw_only=True)
class Summary:
    """A checkpoint at a glance.

    Attributes:
        path: as given.
        format: of the container.
        layout: what describes the tensors: `aoserial`, `torchao`, `pickle`, `plain`.
        writer: as the file says, empty when it does not.
        file_bytes, header_bytes: sizes.
        types: quantized types first, in the order of the file.
        ties: count of names that share another's tensor.
        trail: what migrations were run on the file.
        metadata: the file's other metadata.
        era: the releases among which the whole file was written, where its tensors tell and agree.
    """

    path: str
    format: str
    layout: str
    writer: str
    file_bytes: int
    header_bytes: int
    types: tuple[TypeSummary, ...]
    ties: int
    trail: tuple[dict[str, object], ...]
    metadata: dict[str, str] = field(default_factory=dict)
    era: Era | None = None

    @property
    def count(self) -> int:
        return sum(row.count for row in self.types)


def inspect(path: str | os.PathLike[str]) -> Summary:
    """Summarises a checkpoint; reads its header only and never imports torch.

    Raises:
        MissingFileError, PathError: no such file, or not a regular one.
        FormatError, IntegrityError, LimitError: a header that cannot be read.
    """
    with open_archive(path) as file, locating(file=os.fspath(path)):
        catalog = file.catalog
        upgrader = quiet_upgrader()
        rows = [*_quantized(catalog.groups, upgrader), *_plain(file)]
        return Summary(
            path=os.fspath(path),
            format=file.format,
            layout=catalog.layout,
            writer=catalog.writer,
            file_bytes=file.nbytes,
            header_bytes=file.header_bytes,
            types=tuple(rows),
            ties=len(catalog.ties),
            trail=tuple(catalog.trail),
            metadata=catalog.metadata,
            era=shared(group.era for group in catalog.groups),
        )


def _quantized(groups: Iterable[Group], upgrader: Upgrader) -> list[TypeSummary]:
    rows: dict[tuple[object, ...], TypeSummary] = {}
    for group in groups:
        record = group.template
        known = upgrader.registry.find(record.type)
        becomes, problem = _future(group, upgrader)
        key = (record.type, record.version, becomes, problem)
        so_far = rows.get(key)
        era = group.era if so_far is None else shared([so_far.era, group.era])
        count = len(group.members)
        rows[key] = TypeSummary(
            type=record.type,
            version=record.version,
            head=known.head.version if known else None,
            becomes=becomes,
            count=count + (so_far.count if so_far else 0),
            weights=count * math.prod(record.shape) + (so_far.weights if so_far else 0),
            nbytes=count * record.nbytes + (so_far.nbytes if so_far else 0),
            problem=problem,
            era=era,
        )
    return list(rows.values())


def _future(group: Group, upgrader: Upgrader) -> tuple[str | None, str]:
    """What the group's records become on loading, or why they do not."""
    record: Record = group.template
    if group.fault is not None:
        return None, group.fault.message
    if upgrader.registry.find(record.type) is None:
        return None, ""
    try:
        outcome = upgrader.upgrade(record, written_with=group.fingerprint)
    except AoserialError as error:
        return None, str(error)
    head = (outcome.record.type, outcome.record.version)
    return (spell(head) if head != (record.type, record.version) else None), ""


def _plain(file: Archive) -> list[TypeSummary]:
    parts = [file.parts[key] for key in file.catalog.plain.values()]
    if not parts:
        return []
    return [
        TypeSummary(
            type="torch.Tensor",
            version=None,
            head=None,
            becomes=None,
            count=len(parts),
            weights=sum(math.prod(part.shape) for part in parts),
            nbytes=sum(part.nbytes for part in parts),
        )
    ]
