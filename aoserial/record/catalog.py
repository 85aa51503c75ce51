"""What a checkpoint holds, by name, before any of it is read. Torch-free.

Records that agree in everything but their names form a group, so that whatever has to be worked
out about them is worked out once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from aoserial.errors import AoserialError
from aoserial.record.era import Era
from aoserial.record.record import Record
from aoserial.schema import FrozenMap
from aoserial.storage import Shape, SlotPart


@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """A type and version a file uses, and the fingerprint of what of its schema is used."""

    type: str
    version: int
    fingerprint: str | None = None


@dataclass(kw_only=True)
class Group:
    """Records of one type and version with equal attributes, dtypes and shapes.

    Attributes:
        template: the record they all are, its parts slots without bytes.
        fingerprint: of the schema they were written with; None where the writer kept none.
        members: name → the keys of its parts, in the order of `template.parts`.
        fault: why the fields of its records could not be understood.
        era: in which they were written, where only their fields tell; None where nothing does.
    """

    template: Record
    fingerprint: str | None
    members: dict[str, tuple[str, ...]]
    fault: AoserialError | None = None
    era: Era | None = None


@dataclass(kw_only=True)
class Catalog:
    """The contents of a checkpoint.

    Attributes:
        layout: what described them: metadata of `aoserial` or `torchao`, a `pickle`, or `plain`.
        groups: the quantized tensors.
        plain: name → key of the plain tensors.
        ties: name → the name whose tensor it shares.
        writer: as the file says, empty when it does not.
        trail: what migrations were run on the file.
        objects: the attribute objects in use.
        sealed: the header carried its own digest, which was checked.
        crcs: CRC-32 of each tensor in data order; empty when the file has none.
        pending: of a shard: records that lack parts, with the keys of those that are here.
        metadata: the file's other metadata, kept as it is.
        extra: envelope keys this reader does not know, kept as they are.
    """

    layout: str
    groups: list[Group] = field(default_factory=list)
    plain: dict[str, str] = field(default_factory=dict)
    ties: dict[str, str] = field(default_factory=dict)
    writer: str = ""
    trail: list[dict[str, Any]] = field(default_factory=list)
    objects: list[Head] = field(default_factory=list)
    sealed: bool = False
    crcs: tuple[int, ...] = ()
    pending: dict[str, tuple[str, ...]] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)


Signature = tuple[tuple[str, Shape], ...]


def template(
    *,
    type: str,  # noqa: A002
    version: int,
    shape: Shape,
    dtype: str,
    attributes: FrozenMap,
    parts: Mapping[str, tuple[str, Shape]],
) -> Record:
    """A record whose parts are slots of the given dtypes and shapes."""
    slots = {name: SlotPart(name, dtype, shape) for name, (dtype, shape) in parts.items()}
    return Record(
        type=type, version=version, shape=shape, dtype=dtype, attributes=attributes, parts=slots
    )
