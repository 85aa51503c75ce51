"""torchao's two safetensors layouts → a catalog. Torch-free.

Each name of the state dict has a metadata entry that holds JSON: `{"_type": "Tensor"}`, or the
class name and its attributes (`_data`). The list of names is under `tensor_names`. Since 0.15 the
entry also lists its tensors (`_tensor_data_names`), whose keys are made as ours are, and a plain
tensor lies under its name. In 0.14 keys are `name:field`, and `name:_data` for a plain tensor.
Nothing says which release wrote the file.
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
    UnsupportedOperationError,
    locating,
    raise_all,
)
from aoserial.record import Catalog, Era, Group, key_prefix, shared, template
from aoserial.record.fields import (
    ARRAY,
    OBJECT,
    expect,
    lengths,
    parse_object,
    parse_strings,
    strings,
    take,
)
from aoserial.schema import FrozenMap, Nested, Symbol, Value
from aoserial.schema.values import MAX_DEPTH
from aoserial.storage import Shape
from aoserial.storage.safetensors import Entry
from aoserial.torchao.eras import PROGRAM, era_in_layout, eras_of_fields, eras_of_values
from aoserial.torchao.types import WRITTEN, Parts, Written

NAMES_KEY = "tensor_names"
_OF_0_14 = Era(program=PROGRAM, first="0.14", last="0.14", evidence=("lacks _tensor_data_names",))
_SINCE_0_15 = Era(program=PROGRAM, first="0.15", evidence=("has _tensor_data_names",))

_Parts = tuple[tuple[str, str, Shape], ...]  # name, dtype, shape of each part: what records share


@dataclass(frozen=True, slots=True)
class _Description:
    """One parsed metadata entry; names with the same text share it.

    Attributes:
        parts: the tensors it lists; None in 0.14's layout, which does not list them.
    """

    kind: str
    attributes: FrozenMap
    parts: tuple[str, ...] | None

    def keys(self, name: str, entries: Mapping[str, Entry]) -> dict[str, str]:
        """Part → key of the tensor `name`; a plain tensor is its one part, without a name."""
        if self.kind == "Tensor":
            old = f"{name}:_data"
            return {"": old if name not in entries and old in entries else name}
        if self.parts is not None:
            prefix = key_prefix(name)
            return {part: prefix + part for part in self.parts}
        fields = WRITTEN[self.kind].schema.tensors
        keys = {field.name: f"{name}:{field.name}" for field in fields}
        required = {field.name for field in fields if field.required}
        return {part: key for part, key in keys.items() if part in required or key in entries}


def is_torchao(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata is torchao's: a list of names, of which some are described."""
    if NAMES_KEY not in metadata:
        return False
    return any('"_type"' in text for key, text in metadata.items() if key != NAMES_KEY)


def describes(metadata: Mapping[str, str]) -> bool:
    """Whether the metadata describes every name of its list by a type that torchao's layout has."""
    try:
        names = parse_strings(metadata[NAMES_KEY], NAMES_KEY)
        return bool(names) and all(
            _describe(metadata[name]).kind in (*WRITTEN, "Tensor") for name in names
        )
    except (AoserialError, KeyError, TypeError):
        return False


def declared_keys(metadata: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Name → the keys of its tensors, of all that are described; a plain one's is its name.

    Raises:
        EnvelopeError: metadata that torchao does not write.
        UnsupportedOperationError: 0.14's layout, which does not list the tensors.
    """
    descriptions: dict[str, _Description] = {}
    declared: dict[str, tuple[str, ...]] = {}
    for name in parse_strings(metadata[NAMES_KEY], f"torchao's {NAMES_KEY!r}"):
        with locating(name=name):
            text = metadata.get(name)
            if text is None:
                raise EnvelopeError("torchao's metadata does not describe it")
            description = descriptions.get(text) or _describe(text)
            descriptions[text] = description
            if description.parts is None:
                raise UnsupportedOperationError(
                    "torchao 0.14's layout does not list its tensors, so nobody can tell when it "
                    "is whole; load the file as one"
                )
        declared[name] = tuple(description.keys(name, {}).values())
    return declared


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
    members: dict[tuple[str, _Parts], dict[str, tuple[str, ...]]] = {}
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
        held = description.keys(name, entries)
        keys = tuple(held.values())
        if missing := [key for key in keys if key not in entries]:
            pending[name] = tuple(key for key in keys if key in entries)
            faults += [] if partial else [_missing(name, key) for key in missing]
        elif description.kind == "Tensor":
            plain[name] = keys[0]
        else:
            parts = tuple([(part, *entries[key][:2]) for part, key in held.items()])
            members.setdefault((text, parts), {})[name] = keys
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
    )


def _describe(text: str) -> _Description:
    data = parse_object(text, "torchao's metadata")
    kind = take(data, "_type", str, "torchao's metadata")
    if kind == "Tensor":
        return _Description("Tensor", FrozenMap(), ())
    attributes = take(data, "_data", OBJECT, "torchao's metadata")
    fields = {name: _value(value) for name, value in attributes.items()}
    if "_tensor_data_names" not in data:
        if kind not in WRITTEN:
            raise FormatError(f"torchao 0.14's layout does not say what tensors a {kind!r:.60} has")
        return _Description(kind, FrozenMap(fields), None)
    parts = strings(take(data, "_tensor_data_names", ARRAY, kind), "'_tensor_data_names'")
    if not parts or len(set(parts)) != len(parts):
        raise EnvelopeError(f"{kind} lists no tensors, or one twice: {parts!r:.80}")
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


def _group(description: _Description, held: _Parts, named: dict[str, tuple[str, ...]]) -> Group:
    """The records of one description, with the shape and dtype that they stand for."""
    written = WRITTEN.get(description.kind)
    parts = {name: (dtype, shape) for name, dtype, shape in held}
    attributes = description.attributes
    eras: list[Era | None] = [_OF_0_14 if description.parts is None else _SINCE_0_15]
    with locating(name=next(iter(named))):
        record = template(
            type=f"torchao.{description.kind}",
            version=written.schema.version if written else 1,
            shape=_shape(written, parts, attributes),
            dtype=_dtype(written, parts, attributes),
            attributes=attributes,
            parts=parts,
        )
    if written is not None:
        eras += [era_in_layout(written.schema)]
        eras += eras_of_fields(written.schema, {*attributes, *parts}, "attribute")
        eras += eras_of_values(attributes.values())
    return Group(template=record, fingerprint=None, members=named, era=shared(eras))


def _shape(written: Written | None, parts: Parts, attributes: FrozenMap) -> Shape:
    """The logical shape; of an unknown type, that of its first tensor."""
    if written is None:
        return next(iter(parts.values()))[1]
    shape = written.shape(parts, attributes)
    if not isinstance(shape, tuple):
        raise EnvelopeError(f"torchao's metadata gives no shape, found {shape!r:.60}")
    return lengths(list(shape), "'shape'")


def _dtype(written: Written | None, parts: Parts, attributes: FrozenMap) -> str:
    """The logical dtype; torch's default where the file gives none, as torchao has it."""
    source = written.dtype if written else "dtype"
    if source in parts:
        return parts[source][0]
    given = attributes.get(source)
    return "float32" if given is None else expect(given, str, repr(source))


def _missing(name: str, key: str) -> AoserialError:
    fault = MissingPartError(f"torchao's metadata declares {key!r:.200}, the file does not have it")
    return fault.locate(name=name)
