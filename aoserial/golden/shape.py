"""What a checkpoint holds, described: types, fields, values as digests. And how two such differ."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from aoserial.checkpoint.archives import Archive, open_archive
from aoserial.checkpoint.building import stored_record
from aoserial.checkpoint.contents import Prepared
from aoserial.errors import locating
from aoserial.migrations import spell
from aoserial.record.envelope import collect_objects
from aoserial.schema import REGISTRY
from aoserial.schema.values import encode

Described = dict[str, Any]


def describe(path: Path) -> Described:
    """What is stored in a file, as plain JSON.

    Returns:
        `tensors`: name → type, version, fingerprint, dtype, shape, attributes and parts of a
        quantized tensor, or dtype, shape and sha256 of a plain one; `ties`: name → name.

    Raises:
        AoserialError: the file is not read.
    """
    tensors: dict[str, Any] = {}
    with open_archive(path) as file, locating(file=str(path)):
        for group in file.catalog.groups:
            if group.fault is not None:
                raise group.fault
            for name, keys in group.members.items():
                record = stored_record(file, Prepared(group=group, outcome=None), keys)
                tensors[name] = {
                    "type": record.type,
                    "version": record.version,
                    "fingerprint": group.fingerprint,
                    "dtype": record.dtype,
                    "shape": list(record.shape),
                    "attributes": {key: encode(value) for key, value in record.attributes.items()},
                    "parts": {key: _told(part.read()) for key, part in record.parts.items()},
                }
        tensors.update(_plain(file))
        return {"tensors": dict(sorted(tensors.items())), "ties": dict(file.catalog.ties)}


def versions_in(path: Path) -> list[str]:
    """The types and versions that a file holds, attribute objects too, in order."""
    found: set[str] = set()
    objects: dict[tuple[str, int], set[str]] = {}
    with open_archive(path) as file:
        for group in file.catalog.groups:
            found.add(spell((group.template.type, group.template.version)))
            for value in group.template.attributes.values():
                collect_objects(value, objects)
    return sorted(found | {spell(version) for version in objects})


def digest_of(tensor: torch.Tensor) -> str:
    """SHA-256 of a plain tensor's bytes, in the order of its elements."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(bytes(flat.tolist())).hexdigest()  # goldens are small


def _plain(file: Archive) -> Iterator[tuple[str, Any]]:
    names = list(file.catalog.plain)
    tensors = file.plain([file.catalog.plain[name] for name in names])
    for name, tensor in zip(names, tensors, strict=True):
        yield name, _told(tensor)


def _told(tensor: torch.Tensor) -> dict[str, Any]:
    return {
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "shape": list(tensor.shape),
        "sha256": digest_of(tensor),
    }


def differences(then: Described, now: Described, *, values: bool) -> list[str]:
    """How two descriptions differ, a phrase each.

    Args:
        values: also where only the values of attributes and the bytes of tensors do.
    """
    left, right = (_facts(one, values=values) for one in (then, now))
    return [
        f"{key}: {left.get(key, 'not there')} then, {right.get(key, 'not there')} now"
        for key in {**left, **right}
        if left.get(key) != right.get(key)
    ]


def renamed(described: Described) -> Described:
    """The description with the fields of each known head under their newest names; without
    fingerprints, which go with names."""
    return {
        **described,
        "tensors": {name: _with_newest(one) for name, one in described["tensors"].items()},
    }


def _with_newest(one: dict[str, Any]) -> dict[str, Any]:
    schema = REGISTRY.schema(one["type"], one["version"]) if "type" in one else None
    if schema is None:
        return one
    known = schema.by_name
    fields = {
        kind: {known[key].name if key in known else key: held for key, held in one[kind].items()}
        for kind in ("attributes", "parts")
    }
    return {**one, **fields, "fingerprint": None}


def _facts(described: Described, *, values: bool) -> dict[str, str]:
    """A description flattened: `m.weight: parts.scale` → `float32 [8, 1]`."""
    facts: dict[str, str] = {f"{name}: tied to": to for name, to in described["ties"].items()}
    for name, one in described["tensors"].items():
        if "type" not in one:
            facts[name] = _spell(one, values=values)
            continue
        facts[name] = f"{one['type']}@{one['version']} {one['dtype']} {one['shape']}"
        facts[f"{name}: fingerprint"] = str(one["fingerprint"])
        for key, held in one["attributes"].items():
            facts[f"{name}: attributes.{key}"] = repr(held) if values else _kind(held)
        for key, held in one["parts"].items():
            facts[f"{name}: parts.{key}"] = _spell(held, values=values)
    return facts


def _spell(part: dict[str, Any], *, values: bool) -> str:
    text = f"{part['dtype']} {part['shape']}"
    return f"{text} {part['sha256'][:12]}" if values else text


def _kind(value: Any) -> str:
    """What kind of value an attribute is, whichever it is."""
    match value:
        case {"$object": kind, "version": version}:
            return f"{kind}@{version}"
        case {"$enum": kind}:
            return str(kind)
        case {"$float": _}:
            return "float"
        case list():
            return "tuple"
        case _:
            return type(value).__name__
