"""The contents of a file with every record a plain tensor: the values it stands for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from aoserial.checkpoint.contents import Prepared, spell_members
from aoserial.errors import AoserialError, UnsupportedOperationError, locating
from aoserial.migrations import spell
from aoserial.record import Record
from aoserial.record.envelope import WRITER, Contents
from aoserial.storage import Slabs, compute
from aoserial.tensors import CLASSES, VersionedTensor
from aoserial.tensors.convert import builder


def dequantized(
    contents: Contents, prepared: Sequence[Prepared], faults: list[AoserialError]
) -> Contents:
    """Contents whose records are plain tensors of their logical dtypes, made when they are read.

    Args:
        prepared: how the contents came to be.
        faults: takes one for each group whose class does not say how to dequantize.
    """
    plain = dict(contents.plain)
    counts: Counter[str] = Counter()
    for one in prepared:
        if one.outcome is None:
            continue
        record = one.outcome.record
        try:
            with locating(name=spell_members(one.group)):
                dequantize, slabs = dequantizer(record), _slabs(record)
        except AoserialError as fault:
            faults.append(fault)
            continue
        for name in one.group.members:
            parts = contents.records[name].record.parts.values()
            plain[name] = compute(
                dequantize, *parts, dtype=record.dtype, shape=record.shape, by_rows=slabs
            )
        counts[spell((record.type, record.version))] += len(one.group.members)
    trail = [
        {
            "step": "dequantize",
            "from": source,
            "to": "torch.Tensor",
            "count": count,
            "by": WRITER,
            "lossy": "codes, scales and settings; the values are left",
        }
        for source, count in counts.items()
    ]
    return replace(contents, records={}, plain=plain, trail=[*contents.trail, *trail])


def dequantizer(record: Record) -> Callable[..., torch.Tensor]:
    """A function of a record's parts, in their order, that gives the tensor they stand for.

    Raises:
        UnsupportedOperationError: the class of its type does not say how to dequantize.
        UnknownTypeError, VersionError, FieldError: there is no class, or not of such a record.
    """
    build = builder(record)
    entry = CLASSES.find(record.type)
    method = None if entry is None else getattr(entry.cls, "dequantize", None)
    if method in (None, VersionedTensor.dequantize, torch.Tensor.dequantize):
        raise UnsupportedOperationError(
            f"the class of {record.type} does not say how to dequantize"
        )

    def dequantize(*parts: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = build(parts).dequantize()
        return values.detach()

    return dequantize


def _slabs(record: Record) -> Slabs | None:
    """How to dequantize some rows alone: of what has a block size, a slice is as good as the whole.

    Formulas of blocks give the same bits for each block, whatever is beside it.
    """
    block = record.attributes.get("block_size")
    if not isinstance(block, tuple) or len(block) != len(record.shape) or len(block) < 2:
        return None
    first, height = block[0], record.shape[0]
    assert isinstance(first, int)  # the schema says so
    build = builder(record)

    def rows(start: int, stop: int, *parts: torch.Tensor) -> torch.Tensor:
        values: torch.Tensor = build(parts)[start:stop].dequantize()
        return values.detach()

    return Slabs(rows, first if first < height else 1)
