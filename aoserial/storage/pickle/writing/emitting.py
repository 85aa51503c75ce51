"""From a tree of values to a pickle and the storages it refers to. Torch-free."""

from __future__ import annotations

from typing import NamedTuple

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.collecting import collector_paused
from aoserial.storage.pickle.values import Value
from aoserial.storage.pickle.writing import objects, plain, tensors
from aoserial.storage.pickle.writing.emitter import Emitter
from aoserial.storage.pickle.writing.records import Record
from aoserial.storage.pickle.writing.whereabouts import path_to

_HANDLERS = {**plain.HANDLERS, **objects.HANDLERS, **tensors.HANDLERS}


class Emitted(NamedTuple):
    """A pickle, and the storages that it refers to, in the order of their keys."""

    pickle: bytes
    records: list[Record]


def emit(root: Value) -> Emitted:
    """The pickle of a tree of values, as torch.save would have written it.

    Raises:
        UnsupportedTensorError: there is something in it that no archive can hold, or that is none
            of the values that stand for what a pickle holds. The error names its place.
    """
    classes: dict[int, str] = {}
    runs: list[Emitter] = []  # keeps what they made alive, as it is known by its identity
    with collector_paused():
        while True:
            emitter = Emitter(_HANDLERS, classes)
            runs.append(emitter)
            at: Emitter | Record = emitter
            try:
                emitter.run(root)
                records = list(emitter.records.values())
                for at in records:
                    classes[id(at.storage)] = at.settled_class()
                # nearly always as taken for granted: all that lies in a storage is of one dtype
                if all(classes[id(record.storage)] == record.cls for record in records):
                    for at in records:
                        at.settle(emitter.code)
                    return Emitted(b"".join(emitter.code), records)
            except UnsupportedTensorError as error:
                raise error.locate(name=path_to(root, at.value)) from None
