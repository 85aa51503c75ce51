"""The envelopes of several files as one: what the shards of a set say together. Torch-free.

Each shard that we write describes its own records. Others write one description of all into every
shard, or into the index alone: what is said twice counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from aoserial.errors import CollisionError, raise_all
from aoserial.record.envelope.decode import Envelope, Row

T = TypeVar("T")


def join_envelopes(envelopes: Sequence[Envelope]) -> Envelope:
    """All that the envelopes describe. Digests are of one file each, and are not carried.

    Raises:
        CollisionError: a name that is tied to two others; `Faults` for several.
    """
    if len(envelopes) == 1:
        return replace(envelopes[0], header_digest="", crc32="")
    ties: dict[str, str] = {}
    faults = []
    for envelope in envelopes:
        for name, target in envelope.ties.items():
            if ties.setdefault(name, target) != target:
                fault = CollisionError(f"is tied to {ties[name]!r:.200} and to {target!r:.200}")
                faults.append(fault.locate(name=name))
    raise_all(f"{len(faults)} names are tied to two others", faults)
    return Envelope(
        writer=", ".join(_distinct(one.writer for one in envelopes if one.writer)),
        header_digest="",
        crc32="",
        rows=tuple(_rows(envelopes)),
        objects=tuple(_distinct(head for one in envelopes for head in one.objects)),
        ties=ties,
        plain=tuple(_distinct(name for one in envelopes for name in one.plain)),
        trail=tuple(_distinct_dicts(step for one in envelopes for step in one.trail)),
        extra=agreed([one.extra for one in envelopes]),
    )


def agreed(maps: Sequence[Mapping[str, T]]) -> dict[str, T]:
    """What all maps that have a key say of it; what they say otherwise cannot be said of a set."""
    joined: dict[str, T] = {}
    contested: set[str] = set()
    for one in maps:
        for key, value in one.items():
            if key in contested:
                continue
            if joined.setdefault(key, value) != value:
                contested.add(key)
                del joined[key]
    return joined


def _rows(envelopes: Iterable[Envelope]) -> Iterable[Row]:
    """The rows of all, each once however many files repeat it."""
    seen: dict[object, list[Row]] = {}
    for envelope in envelopes:
        for row in envelope.rows:
            # repr, since 1, 1.0 and True are equal and are not the same attribute
            known = seen.setdefault((row.names, repr(row.attributes)), [])
            if row not in known:
                known.append(row)
                yield row


def _distinct(values: Iterable[T]) -> Iterable[T]:
    return dict.fromkeys(values)


def _distinct_dicts(values: Iterable[dict[str, T]]) -> Iterable[dict[str, T]]:
    known: list[dict[str, T]] = []
    for value in values:
        if value not in known:
            known.append(value)
    return known
