"""From weights that torchao watched to the weights. Torch-free."""

from __future__ import annotations

from aoserial.migrations import migration
from aoserial.record import Record
from aoserial.schema import FrozenMap
from aoserial.torchao.wrappers.observers import WATCHED, Watched


def unwrap_watched(record: Record) -> Record:
    """The plain weight, and what its wrapper was told; the class comes first, as for training.

    From torchao's class bodies: no file is at hand.
    """
    watched = _BY_TYPE[record.type]
    given = record.attributes["settings"]
    pairs = given if isinstance(given, tuple) else ()
    return Record(
        type="aoserial.UnquantizedTensor",
        version=1,
        shape=record.shape,
        dtype=record.dtype,
        attributes=FrozenMap(settings=(("class", watched.name), *pairs)),
        parts={"weight": record.parts[watched.weight]},
    )


_BY_TYPE: dict[str, Watched] = {watched.schema.type: watched for watched in WATCHED}

for _type, _watched in _BY_TYPE.items():
    migration(_type, 1, 1, becomes="aoserial.UnquantizedTensor", lossy=_watched.loses)(
        unwrap_watched
    )
