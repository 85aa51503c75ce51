"""What becomes of weights in the order of one kernel: they stay as they are, inert. Torch-free."""

from __future__ import annotations

from aoserial.errors import OpaqueBytesError
from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.torchao.opaque import OPAQUE

_WHOSE = {opaque.schema.type: opaque.whose for opaque in OPAQUE}


def stay_inert(record: Record) -> Record:
    """A weight of `OPAQUE`.

    Raises:
        OpaqueBytesError: always.
    """
    raise OpaqueBytesError(_WHOSE[record.type])


for _type in _WHOSE:
    migration(_type, 1, 2)(stay_inert)
