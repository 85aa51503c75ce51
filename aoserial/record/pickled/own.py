"""Our own pickled tensors: the arguments of `aoserial._rebuild`, checked. Torch-free."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from aoserial.errors import EnvelopeError
from aoserial.record.fields import OBJECT, expect, lengths, parse_object, strings
from aoserial.record.record import Record
from aoserial.schema import FrozenMap
from aoserial.schema.values import check_version, decode
from aoserial.storage import Part, Shape

T = TypeVar("T")

_WHAT = "a pickled aoserial tensor"


@dataclass(frozen=True, kw_only=True, slots=True)
class OwnRecord:
    """All but the parts. `proof` is the fingerprint of the schema it was written with."""

    type_id: str
    version: int
    proof: str
    dtype: str
    shape: Shape
    attributes: FrozenMap

    def checked(self, parts: object, kind: type[T]) -> dict[str, T]:
        """The parts by name, each of which must be exactly a `kind`.

        Raises:
            EnvelopeError: they are not.
        """
        held = expect(parts, OBJECT, f"the parts of {_WHAT}")
        strings(list(held), f"the names of the parts of {_WHAT}")
        for name, part in held.items():
            if type(part) is not kind:
                raise EnvelopeError(f"part {name!r:.80} of {_WHAT} is no plain tensor")
        return held

    def with_parts(self, parts: object, kind: type[T], wrap: Callable[[T], Part]) -> Record:
        """The record with these parts, each a `kind` that `wrap` makes a part of."""
        return Record(
            type=self.type_id,
            version=self.version,
            shape=self.shape,
            dtype=self.dtype,
            attributes=self.attributes,
            parts={name: wrap(part) for name, part in self.checked(parts, kind).items()},
        )


def own_record(  # noqa: PLR0917 - as a pickle calls
    type_id: object, version: object, proof: object, dtype: object, shape: Any, attributes: object
) -> OwnRecord:
    """The arguments of `aoserial._rebuild` before the parts; attributes are JSON.

    Raises:
        EnvelopeError: arguments that it is never called with.
    """
    if not isinstance(shape, tuple | list):
        raise EnvelopeError(f"the shape of {_WHAT} must be a list, found {shape!r:.60}")
    values = parse_object(expect(attributes, str, f"the attributes of {_WHAT}"), _WHAT)
    return OwnRecord(
        type_id=expect(type_id, str, f"the type of {_WHAT}"),
        version=check_version(version),
        proof=expect(proof, str, f"the proof of {_WHAT}"),
        dtype=expect(dtype, str, f"the dtype of {_WHAT}"),
        shape=lengths(list(shape), f"the shape of {_WHAT}"),
        attributes=FrozenMap({name: decode(value) for name, value in values.items()}),
    )
