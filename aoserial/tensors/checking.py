"""What the public constructor of a tensor class does with its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from aoserial.errors import FieldError, locating
from aoserial.schema import Value, resolve
from aoserial.storage.part import TensorPart
from aoserial.tensors.classes import CLASSES, TensorClass
from aoserial.tensors.live import dump, load


def given_parts(declared: TensorClass, given: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The tensors among the arguments, without those that are None.

    Raises:
        FieldError: a tensor field that is given something else.
    """
    parts = {name: given[name] for name in declared.tensors if given[name] is not None}
    for name, part in parts.items():
        if not isinstance(part, torch.Tensor):
            raise FieldError(f"expected a tensor, found {part!r:.80}").locate(field=name)
    return parts


def checked_fields(
    declared: TensorClass,
    parts: Mapping[str, torch.Tensor],
    attributes: Mapping[str, Any],
    shape: Sequence[int],
) -> dict[str, Any]:
    """Every field by name, checked against the schema, attributes as the annotations want them.

    Raises:
        FieldError: fields outside the schema.
    """
    values: dict[str, Value] = {}
    for name, value in attributes.items():
        with locating(field=name):
            values[name] = dump(value)
    resolution = resolve(
        declared.schema,
        shape=tuple(shape),
        attributes=values,
        parts={name: TensorPart(part) for name, part in parts.items()},
        registry=CLASSES.schemas,
    )
    fields: dict[str, Any] = {name: parts.get(name) for name in declared.tensors}
    for name, hint in declared.hints.items():
        fields[name] = load(resolution.attributes[name], hint)
    return fields


def common_device(parts: Mapping[str, torch.Tensor]) -> torch.device:
    """The one device of all parts.

    Raises:
        FieldError: parts on several devices, or none at all.
    """
    device: torch.device | None = None
    for name, part in parts.items():
        if device is not None and part.device != device:
            raise FieldError(
                f"parts lie on several devices: {name!r} on {part.device}, others on {device}"
            )
        device = part.device
    if device is None:
        raise FieldError("a tensor without parts has no device")
    return device
