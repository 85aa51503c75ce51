"""A live state dict as what goes into a file."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import torch

from aoserial.errors import (
    AoserialError,
    CollisionError,
    TensorNameError,
    UnregisteredClassError,
    UnsupportedOperationError,
    UnsupportedTensorError,
    locating,
    raise_all,
)
from aoserial.kernels import PackedWeight
from aoserial.migrations import Upgrader
from aoserial.record import Record
from aoserial.record.envelope import ENVELOPE_KEY, Contents, Stored
from aoserial.storage import TensorPart
from aoserial.storage.dtypes import BY_NAME, dtype_name
from aoserial.tensors import CLASSES, InertTensor, Loaded, to_record
from aoserial.torchao.live import is_live, to_torchao_record

_PLAIN_CLASSES = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def gather(state: Any, metadata: Mapping[str, str] | None = None) -> Contents:
    """Sorts a state dict into quantized and plain tensors and ties; copies no data.

    Two names are tied when they hold the same bytes the same way: one tensor object, or tensors of
    one storage with equal offset, shape and strides. Other overlapping views are written out each.

    Raises:
        UnsupportedTensorError: what no file can hold: not a tensor, sparse, on `meta`, a dtype
            without a name in the format …
        UnregisteredClassError: a tensor subclass without a schema.
        Faults: several of these.
    """
    if not isinstance(state, Mapping):
        raise UnsupportedTensorError(f"a {type(state).__name__} is no mapping of names to tensors")
    records: dict[str, Stored] = {}
    plain: dict[str, TensorPart] = {}
    ties: dict[str, str] = {}
    homes: dict[object, str] = {}
    faults: list[AoserialError] = []
    for name, value in state.items():
        if not isinstance(name, str):
            faults.append(TensorNameError(f"{name!r:.80} names a tensor, and is no string"))
            continue
        try:
            with locating(name=name):
                stored = _take(value)
        except AoserialError as fault:
            faults.append(fault)
            continue
        identity = _identity(stored)
        home = homes.setdefault(identity, name) if identity is not None else name
        if home != name:
            ties[name] = home
        elif isinstance(stored, Stored):
            records[name] = stored
        else:
            plain[name] = stored
    raise_all(f"{len(faults)} tensors cannot be saved", faults)
    return Contents(
        records=records,
        plain=plain,
        ties=ties,
        trail=[],
        metadata=check_metadata(metadata or {}),
        extra={},
    )


def _take(value: Loaded) -> Stored | TensorPart:
    if isinstance(value, InertTensor):
        return Stored(record=value.record, fingerprint=value.fingerprint)
    if not isinstance(value, torch.Tensor):
        raise UnsupportedTensorError(f"is a {type(value).__name__}, not a tensor")
    record = record_of(value)
    if record is None:
        check_plain(value)
        return TensorPart(value.detach())
    for part_name, part in record.parts.items():
        with locating(field=part_name):
            check_plain(part.tensor if isinstance(part, TensorPart) else value)
    return Stored(record=record)


def record_of(tensor: torch.Tensor) -> Record | None:
    """The record of a quantized tensor, torchao's own included; None for a plain one.

    Raises:
        UnregisteredClassError: a tensor subclass without a schema.
        UnsupportedOperationError: a weight of which only a packed form is left.
    """
    kind = type(tensor)
    if kind is PackedWeight:
        raise UnsupportedOperationError(
            "is packed for a kernel, which is never saved: unpack first, by "
            "aoserial.kernels.restore(model)"
        )
    if kind in CLASSES:
        return to_record(tensor)
    if is_live(tensor):
        return _from_torchao(tensor)
    if kind not in _PLAIN_CLASSES:
        raise UnregisteredClassError(
            f"is a {kind.__module__}.{kind.__qualname__}, which has no schema; "
            f"register it with @aoserial.register or aoserial.register_class"
        )
    return None


def _from_torchao(tensor: torch.Tensor) -> Record:
    """A live tensor of torchao's as a record of our type, as its file would become."""
    return Upgrader().upgrade(to_torchao_record(tensor)).record


def check_plain(tensor: torch.Tensor) -> None:
    """Raises `UnsupportedTensorError` for what no file can hold."""
    dtype = BY_NAME.get(dtype_name(tensor.dtype))
    if dtype is None or not dtype.in_torch:
        raise UnsupportedTensorError(f"dtype {tensor.dtype} has no name in the safetensors format")
    if tensor.layout is not torch.strided:
        raise UnsupportedTensorError(f"layout is {tensor.layout}, only strided tensors are stored")
    if tensor.is_meta:
        raise UnsupportedTensorError("is on the meta device and has no data")
    if tensor.is_conj() or tensor.is_neg():
        raise UnsupportedTensorError("is lazily conjugated or negated; resolve_conj() it first")


def _identity(stored: Stored | TensorPart) -> object | None:
    """What is equal for two values that hold the same bytes in the same way; None for no bytes."""
    if isinstance(stored, TensorPart):
        return _place(stored.tensor)
    record = stored.record
    places = tuple(
        (name, _place(part.tensor) if isinstance(part, TensorPart) else None)
        for name, part in record.parts.items()
    )
    if any(place is None for _, place in places):
        return None
    return (
        record.type,
        record.version,
        record.shape,
        record.dtype,
        repr(record.attributes),
        places,
    )


def _place(tensor: torch.Tensor) -> object | None:
    if tensor.numel() == 0:
        return None
    return (tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride())


def check_metadata(
    metadata: Mapping[str, str], reserved: Collection[str] = (ENVELOPE_KEY,)
) -> dict[str, str]:
    """The user's metadata, which must be strings and keep off the `reserved` keys."""
    for key, text in metadata.items():
        if not isinstance(key, str) or not isinstance(text, str):
            raise UnsupportedTensorError(f"metadata must be strings, found {key!r}: {text!r:.60}")
        if key in reserved:
            raise CollisionError(f"the metadata key {key!r:.100} describes the tensors")
    return dict(metadata)
