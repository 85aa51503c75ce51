"""Writes trees of values as pickles that mean what they mean. Torch-free to import.

`emit` gives the pickle and the storages it refers to; nothing is written, and nothing that a value
names is imported. `opcodes` spells single opcodes, `emitter` walks the tree, the handlers in
`plain`, `objects` and `tensors` know how each kind of value is said, `records` what of each storage
is used.
"""

from aoserial.storage.pickle.writing.emitting import Emitted, emit
from aoserial.storage.pickle.writing.records import Record

__all__ = ["Emitted", "Record", "emit"]
