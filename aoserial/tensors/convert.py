"""Tensors ⇄ records: what is saved of a tensor, and how tensors are made from what was saved."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from aoserial.errors import (
    FieldError,
    UnknownTypeError,
    UnsupportedTensorError,
    VersionError,
    escape,
)
from aoserial.record.record import Record
from aoserial.schema import FrozenMap, Resolution, Value, resolve
from aoserial.storage.dtypes import BY_NAME, dtype_name, torch_dtype
from aoserial.storage.part import Part, TensorPart
from aoserial.tensors.checking import common_device
from aoserial.tensors.classes import CLASSES, Classes, TensorClass, make_wrapper
from aoserial.tensors.kept import NOTHING_KEPT, Kept
from aoserial.tensors.live import dump, load, own_copy

# part tensors, in the order of the template's parts → the tensor they make up
Build: TypeAlias = Callable[[Sequence[torch.Tensor]], torch.Tensor]


def to_record(tensor: torch.Tensor, *, classes: Classes = CLASSES) -> Record:
    """The record of a tensor whose class is registered; its parts are the tensor's own, not copies.

    An optional attribute equal to its absence-default is left out, and so is an absent tensor.

    Raises:
        UnregisteredClassError: its class has no type id.
        FieldError: an attribute that no file can hold.
        UnsupportedTensorError: a part that is itself a subclass.
    """
    declared = classes.tensor(type(tensor))
    kept: Kept = getattr(tensor, "_kept", NOTHING_KEPT)
    parts: dict[str, Part] = {}
    for name in declared.tensors:
        part = getattr(tensor, name)
        if part is not None:
            parts[name] = _part(name, part)
    for name, slot in zip(kept.parts, kept.slots, strict=True):
        parts[name] = _part(name, getattr(tensor, slot))
    attributes: dict[str, Value] = {}
    for name, absent in declared.absences:
        try:
            value = dump(getattr(tensor, name), classes)
        except FieldError as error:
            error.locate(field=name)
            raise
        if value is not absent and value != absent:
            attributes[name] = value
    with torch._C.DisableTorchFunctionSubclass():  # a subclass is asked for its own shape, slowly
        shape, dtype = tuple(tensor.shape), tensor.dtype
    return Record(
        type=declared.schema.type,
        version=declared.schema.version,
        shape=shape,
        dtype=dtype_name(dtype),
        attributes=FrozenMap({**attributes, **kept.attributes} if kept else attributes),
        parts=parts,
    )


def from_record(record: Record, *, classes: Classes = CLASSES) -> torch.Tensor:
    """The tensor of a record at its type's head; reads the parts.

    Raises:
        UnknownTypeError: no class is registered for the type.
        VersionError: the record is not at the head.
        FieldError: fields outside the schema.
    """
    build = builder(record, classes=classes)
    return build([part.read() for part in record.parts.values()])


def builder(template: Record, *, classes: Classes = CLASSES) -> Build:
    """A function that makes tensors like `template` from parts, all that is common worked out once.

    Args:
        template: a record at its type's head; its parts are looked at, not read. Fields that it
            does not declare take what their absence means.

    Returns:
        A function of the part tensors, in the order of `template.parts`. It trusts their dtypes and
        shapes; parts on several devices raise `FieldError`.

    Raises:
        As `from_record`.
    """
    declared = _declared(template, classes)
    resolution = resolve(
        declared.schema,
        shape=template.shape,
        attributes=template.attributes,
        parts=template.parts,
        registry=classes.schemas,
    )
    attributes = {
        name: load(resolution.attributes[name], hint, classes)
        for name, hint in declared.hints.items()
    }
    kept = _kept(resolution)
    names = [resolution.renamed.get(name, name) for name in template.parts]
    slots = dict(zip(kept.parts, kept.slots, strict=True))
    keys = tuple(slots.get(name, name) for name in names)
    if declared.listed or kept or _shares_lists(attributes):
        return _careful_builder(declared, template, attributes, kept, keys)
    return _fast_builder(declared, template, attributes, keys)


def _fast_builder(
    declared: TensorClass, template: Record, attributes: dict[str, Any], keys: tuple[str, ...]
) -> Build:
    """For classes without a constructor of their own: a wrapper, and its fields set."""
    fixed = {name: None for name in declared.tensors if name not in keys} | attributes
    cls, shape, dtype = declared.cls, template.shape, _logical_dtype(template)

    def build(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        device = parts[0].device
        for part in parts:
            if part.device != device:
                common_device(dict(zip(keys, parts, strict=True)))  # raises
        tensor = make_wrapper(cls, shape, dtype=dtype, device=device)
        fields = tensor.__dict__
        fields.update(fixed)
        fields.update(zip(keys, parts))  # noqa: B905  (strict costs; the caller has the template)
        return tensor

    return build


def _careful_builder(
    declared: TensorClass,
    template: Record,
    attributes: Mapping[str, Any],
    kept: Kept,
    keys: tuple[str, ...],
) -> Build:
    """For classes that make their instances themselves, whose work is then checked."""
    shape, dtype = template.shape, _logical_dtype(template)

    def build(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        held = dict(zip(keys, parts, strict=True))
        fields = {name: held.get(name) for name in declared.tensors}
        own = {name: own_copy(attributes[name], hint) for name, hint in declared.hints.items()}
        device = common_device(held)
        try:
            tensor = declared.make(fields | own, shape=shape, dtype=dtype, device=device)
        except (TypeError, ValueError, RuntimeError) as error:  # of somebody else's constructor
            raise FieldError(
                f"the class of {declared.schema} refuses {template}: {error}"
            ) from error
        if tuple(tensor.shape) != shape or tensor.dtype != dtype:
            raise FieldError(
                f"{declared.schema} was saved as {template.dtype}{list(shape)}, but its class "
                f"makes {dtype_name(tensor.dtype)}{list(tensor.shape)} of the same fields"
            )
        kept.attach(tensor, held)
        return tensor

    return build


def _declared(template: Record, classes: Classes) -> TensorClass:
    entry = classes.find(template.type)
    if not isinstance(entry, TensorClass):
        raise UnknownTypeError(
            f"no tensor class is registered as {template.type}", type=template.type
        )
    if entry.schema.version != template.version:
        raise VersionError(
            f"the record is {template.type}@{template.version}, its class {entry.schema}",
            found=template.version,
            supported=entry.schema.version,
        )
    return entry


def _logical_dtype(template: Record) -> torch.dtype:
    if template.dtype not in BY_NAME or not BY_NAME[template.dtype].in_torch:
        error = FieldError(f"{escape(template.dtype)!r} is no dtype of a tensor")
        raise error.locate(field="dtype")
    return torch_dtype(template.dtype)


def _kept(resolution: Resolution) -> Kept:
    ignored = resolution.ignored
    return Kept(
        attributes=FrozenMap(
            {name: value for name, value in resolution.attributes.items() if name in ignored}
        ),
        parts=tuple(name for name in resolution.parts if name in ignored),
    )


def _part(name: str, part: torch.Tensor) -> Part:
    if type(part) is not torch.Tensor and type(part) is not torch.nn.Parameter:
        raise UnsupportedTensorError(
            f"part {name!r} is a {type(part).__qualname__}; the parts of a tensor are plain tensors"
        )
    return TensorPart(part)


def _shares_lists(attributes: Mapping[str, Any]) -> bool:
    return any(isinstance(value, list) for value in attributes.values())
