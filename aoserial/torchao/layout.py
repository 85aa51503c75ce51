"""torchao's safetensors layout of 0.15 and later → a catalog. Torch-free.

Each name of the state dict has a metadata entry that holds JSON: `{"_type": "Tensor"}`, or the
class name, its attributes (`_data`) and its tensors (`_tensor_data_names`), whose keys are made as
ours are. The list of names is under `tensor_names`. Nothing says which release wrote the file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aoserial.errors import (
    AoserialError,
    EnvelopeError,
    FormatError,
    LeftoverError,
    MissingPartError,
    locating,
    raise_all,
)
from aoserial.record import Catalog, Group, Signature, key_prefix, template
from aoserial.record.fields import ARRAY, OBJECT, expect, parse_object, parse_strings, strings, take
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.schema.values import MAX_DEPTH
from aoserial.storage.safetensors import Entry
from aoserial.torchao.declarations import TENSORS

NAMES_KEY = "tensor_names"

# class name in the metadata → the version of its form; a later release's names stay inert
_VERSIONS = {schema.type.removeprefix("torchao."): schema.version for schema in TENSORS}


@dataclass(frozen=True, slots=True)
class _Description:
    """One parsed metadata entry; names with the same text share it."""

    kind: str
    attributes: FrozenMap
    parts: tuple[str, ...]


def is_torchao(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata is torchao's: a list of names, of which some are described."""
    if NAMES_KEY not in metadata:
        return False
    return any('"_type"' in text for key, text in metadata.items() if key != NAMES_KEY)


def decode_layout(
    metadata: Mapping[str, str], entries: Mapping[str, Entry], *, partial: bool = False
) -> Catalog:
    """The catalog of a file that torchao's `flatten_tensor_state_dict` (0.15 to 0.18) described.

    Args:
        metadata: of the file.
        entries: the tensors by key, in data order.
        partial: records that lack parts go to `Catalog.pending` instead of being an error, and
            so do tensors that the metadata does not speak of.

    Raises:
        EnvelopeError: metadata that torchao does not write.
        MissingPartError, LeftoverError, FormatError: what does not add up; `Faults` for several.
    """
    names = parse_strings(metadata[NAMES_KEY], f"torchao's {NAMES_KEY!r}")
    descriptions: dict[str, _Description] = {}
    members: dict[tuple[str, Signature], dict[str, tuple[str, ...]]] = {}
    plain: dict[str, str] = {}
    pending: dict[str, tuple[str, ...]] = {}
    claimed: set[str] = set()
    faults: list[AoserialError] = []
    for name in names:
        text = metadata.get(name)
        if text is None:
            faults.append(
                EnvelopeError("torchao's metadata does not describe it").locate(name=name)
            )
            continue
        with locating(name=name):
            description = descriptions.get(text) or _describe(text)
            descriptions[text] = description
        keys = (
            (name,)
            if description.kind == "Tensor"
            else tuple([key_prefix(name) + part for part in description.parts])
        )
        if missing := [key for key in keys if key not in entries]:
            pending[name] = tuple(key for key in keys if key in entries)
            faults += [] if partial else [_missing(name, key) for key in missing]
        elif description.kind == "Tensor":
            plain[name] = name
        else:
            signature = tuple([entries[key][:2] for key in keys])
            members.setdefault((text, signature), {})[name] = keys
        claimed.update(keys)
    faults += [
        LeftoverError("torchao's metadata does not say what this tensor is").locate(name=key)
        for key in entries
        if key not in claimed and not partial
    ]
    raise_all(f"torchao's metadata and the file disagree in {len(faults)} places", faults)
    groups = [
        _group(descriptions[text], signature, named) for (text, signature), named in members.items()
    ]
    described = {NAMES_KEY, *names}
    kept = {key: text for key, text in metadata.items() if key not in described}
    return Catalog(
        layout="torchao",
        groups=groups,
        plain=plain,
        pending=pending,
        metadata=kept,
        writer="torchao ≥ 0.15",
    )


def _describe(text: str) -> _Description:
    data = parse_object(text, "torchao's metadata")
    kind = take(data, "_type", str, "torchao's metadata")
    if kind == "Tensor":
        return _Description("Tensor", FrozenMap(), ())
    if "_tensor_data_names" not in data:
        raise FormatError(
            "this is torchao 0.14's safetensors layout (keys 'name:field'), which this version "
            "does not read; 0.15 and later are read"
        )
    attributes = take(data, "_data", OBJECT, "torchao's metadata")
    parts = strings(take(data, "_tensor_data_names", ARRAY, kind), "'_tensor_data_names'")
    if not parts or len(set(parts)) != len(parts):
        raise EnvelopeError(f"{kind} lists no tensors, or one twice: {parts!r:.80}")
    fields = {name: _value(value) for name, value in attributes.items()}
    return _Description(kind, FrozenMap(fields), tuple(parts))


def _value(data: Any, depth: int = 0) -> Value:
    """A value of torchao's JSON: objects and enums are tagged by `_type`, enums by member name."""
    if depth > MAX_DEPTH:
        raise EnvelopeError(f"torchao's metadata is nested more than {MAX_DEPTH} deep")
    match data:
        case None | bool() | int() | float() | str():
            return data
        case list():
            return tuple(_value(item, depth + 1) for item in data)
        case {"_type": "torch.dtype", "_data": str(name)}:
            return name
        case {"_type": str(kind), "_data": str(name)}:
            return Symbol(f"torchao.{kind}", name)
        case {"_type": str(kind), "_data": dict(fields)}:
            inside = {name: _value(item, depth + 1) for name, item in fields.items()}
            return Nested(f"torchao.{kind}", 1, FrozenMap(inside))
        case _:
            raise EnvelopeError(
                f"torchao's metadata holds {str(data)[:60]!r}, which it never wrote"
            )


def _group(
    description: _Description, signature: Signature, named: dict[str, tuple[str, ...]]
) -> Group:
    """The records of one description; their logical shape is that of the codes."""
    parts = dict(zip(description.parts, signature, strict=True))
    codes = parts.get("qdata", signature[0])
    dtype = description.attributes.get("dtype")
    record = template(
        type=f"torchao.{description.kind}",
        version=_VERSIONS.get(description.kind, 1),
        shape=codes[1],
        # without a dtype torch makes a wrapper subclass of its default dtype
        dtype=expect(dtype, str, "'dtype'") if dtype is not None else "float32",
        attributes=description.attributes,
        parts=parts,
    )
    return Group(template=record, fingerprint=None, members=named)


def _missing(name: str, key: str) -> AoserialError:
    fault = MissingPartError(f"torchao's metadata declares {key!r:.200}, the file does not have it")
    return fault.locate(name=name)
