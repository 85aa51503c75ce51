"""How tensors of registered types are pickled: by one permanent function, never by a class path.

A pickle says `aoserial._rebuild(type id, version, …)`, so a class may be renamed, moved or changed,
and what it reads is resolved and migrated as a record of a file is. The arguments are strings,
numbers, tuples, dicts and plain tensors, which `torch.load(weights_only=True)` allows.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import torch

from aoserial.migrations import Upgrader
from aoserial.record import Record
from aoserial.record.pickled import own_record
from aoserial.schema import REGISTRY, fingerprint
from aoserial.schema.values import encode
from aoserial.storage import TensorPart
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.convert import from_record, to_record

if TYPE_CHECKING:
    from collections.abc import Callable


def reduce(tensor: torch.Tensor) -> tuple[Callable[..., torch.Tensor], tuple[Any, ...]]:
    """What `__reduce_ex__` of a tensor of a registered type returns."""
    if getattr(tensor, "_is_param", False):
        # as torch does for parameters: the tensor, whether it trains, no hooks
        data = tensor.detach()
        return torch._utils._rebuild_parameter, (data, tensor.requires_grad, OrderedDict())
    record = to_record(tensor)
    parts = {name: part.read() for name, part in record.parts.items()}
    return _rebuild, (record.type, record.version, *arguments_of(record), parts)


def arguments_of(record: Record, *, proof: str | None = None) -> tuple[Any, ...]:
    """Of what `_rebuild` takes: all between the version and the parts.

    Args:
        record: at the head of its type, or of an unknown one.
        proof: the fingerprint that a record of an unknown type came with.
    """
    attributes = {name: encode(value) for name, value in record.attributes.items()}
    if proof is None:
        proof = fingerprint(REGISTRY[record.type].head, {*record.attributes, *record.parts})
    return proof, record.dtype, record.shape, json.dumps(attributes, sort_keys=True)


def _rebuild(  # noqa: PLR0917 - a pickle calls by position
    type_id: str,
    version: int,
    proof: str,
    dtype: str,
    shape: tuple[int, ...],
    attributes: str,
    parts: dict[str, torch.Tensor],
) -> torch.Tensor:
    """The tensor that a pickle describes, at the head of its type. Part of the file format.

    Args:
        type_id, version, proof: of the schema it was written with; the proof is its fingerprint.
        dtype, shape: that the tensor stands for.
        attributes: JSON of the attributes, as in an envelope.
        parts: the plain tensors.

    Raises:
        UnknownTypeError: nobody registered the type.
        AoserialError: whatever resolving and migrating a record of a file raises.
    """
    own = own_record(type_id, version, proof, dtype, shape, attributes)
    record = own.with_parts(parts, torch.Tensor, TensorPart)
    outcome = Upgrader().upgrade(record, written_with=own.proof)
    return from_record(outcome.record)


# the name that pickles know it by; `aoserial` has it, so that this package is free to change
_rebuild.__module__ = "aoserial"
_rebuild.__qualname__ = "_rebuild"


def safe_globals() -> list[Callable[..., Any] | tuple[Callable[..., Any], str]]:
    """What `torch.load(weights_only=True)` must allow to read our pickles; done on import."""
    return [_rebuild]


def _reduce_ex(self: torch.Tensor, protocol: int) -> tuple[Any, ...]:
    del protocol  # what is emitted is plain data at any
    return reduce(self)


# set here, since what it needs is made of the class itself
VersionedTensor.__reduce_ex__ = _reduce_ex  # type: ignore[method-assign]
torch.serialization.add_safe_globals(safe_globals())
