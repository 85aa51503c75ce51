"""Raw records, as the reader of pickles makes them, from a few words."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from aoserial.migrations import Outcome, Upgrader
from aoserial.record import Record
from aoserial.record.raw import PREFIX
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.storage import TensorPart
from aoserial.torchao import pickled


def raw(
    path: str, shape: tuple[int, ...], dtype: str = "bfloat16", **fields: torch.Tensor | Value
) -> Record:
    """The raw record of a tensor subclass that was pickled under `path`."""
    parts = {name: TensorPart(held) for name, held in fields.items() if torch.is_tensor(held)}
    rest = {name: held for name, held in fields.items() if name not in parts}
    return Record(
        type=PREFIX + path,
        version=1,
        shape=shape,
        dtype=dtype,
        attributes=FrozenMap(rest),
        parts=parts,
    )


def member(path: str, value: object) -> Symbol:
    """A member of an enum, as a pickle has it."""
    return Symbol(PREFIX + path, str(value))


def instance(path: str, **fields: Value) -> Nested:
    """An object, as a pickle has it."""
    return Nested(PREFIX + path, 1, FrozenMap(fields))


def identify(record: Record) -> Record | None:
    """The record of torchao's type that a raw record is; None for a class it never pickled."""
    found = pickled.identify(record)
    return None if found is None else found.record


def upgraded(record: Record, assume: Mapping[str, str] | None = None) -> Outcome:
    """What becomes of a raw record that torchao is known to have written."""
    known = identify(record)
    assert known is not None
    return Upgrader(assume=assume or {}).upgrade(known)
