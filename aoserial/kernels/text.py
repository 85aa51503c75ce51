"""A spec as text: what a graph keeps of a weight beside its tensors."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

import torch

from aoserial.kernels.backend import Packed
from aoserial.kernels.spec import ActivationSpec, Spec

_OF_SPEC = tuple(field.name for field in fields(Spec) if field.name != "activation")
_OF_ACTIVATION = tuple(field.name for field in fields(ActivationSpec))


def spec_text(spec: Spec) -> str:
    """The spec as one JSON object, which `spec_of` reads.

    Written by hand, since a compiler traces through it: neither `json.dumps` nor the `repr` of a
    dataclass is what torch.compile can trace.
    """
    members = [f'"{name}":{_json(getattr(spec, name))}' for name in _OF_SPEC]
    activation = spec.activation
    if activation is not None:
        inner = [f'"{name}":{_json(getattr(activation, name))}' for name in _OF_ACTIVATION]
        members.append(f'"activation":{{{",".join(inner)}}}')
    return f"{{{','.join(members)}}}"


@cache
def spec_of(text: str) -> Spec:
    """The spec that `spec_text` wrote."""
    members: dict[str, Any] = json.loads(text)
    inner = members.pop("activation", None)
    activation = None if inner is None else ActivationSpec(**_with_tuples(inner))
    return Spec(activation=activation, **_with_tuples(members))


@dataclass(frozen=True, slots=True)
class PackedTold:
    """A packed weight without its tensors: the backend, the form, and the parts' names."""

    backend: str
    spec: Spec
    layout: str
    parts: tuple[str, ...]

    def packed(self, parts: Mapping[str, torch.Tensor]) -> Packed:
        return Packed(spec=self.spec, parts=parts, layout=self.layout)


def packed_text(backend: str, packed: Packed) -> str:
    """A packed weight without its tensors, which `packed_of` reads."""
    parts = _json(tuple(packed.parts))
    return (
        f'{{"backend":"{backend}","layout":"{packed.layout}","parts":{parts},'
        f'"spec":{spec_text(packed.spec)}}}'
    )


@cache
def packed_of(text: str) -> PackedTold:
    """What `packed_text` wrote."""
    members = json.loads(text)
    spec = spec_of(json.dumps(members["spec"]))
    return PackedTold(members["backend"], spec, members["layout"], tuple(members["parts"]))


def _json(value: object) -> str:
    """A name, number, truth value, None, or a tuple of those. Names hold nothing to escape."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if isinstance(value, tuple):
        return f"[{','.join([_json(each) for each in value])}]"
    if isinstance(value, float):
        return f"{value}".replace("inf", "Infinity").replace("nan", "NaN")
    return f'"{value}"' if isinstance(value, str) else f"{value}"


def _with_tuples(members: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in members.items()
    }
