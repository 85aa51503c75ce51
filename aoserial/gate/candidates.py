"""The records of a schema that an edit of it could break, the smallest first. Torch-free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from aoserial.gate.example import example
from aoserial.record import Record
from aoserial.schema import Field, FrozenMap, Registry, Schema, Symbol, without_defaults
from aoserial.storage import SlotPart


def candidates(schema: Schema, about: str, registry: Registry) -> Iterator[Record]:
    """Records of a schema that a change of one of its fields could break, smallest first."""
    found = [example(schema, registry), *_with_field(schema, about, registry)]
    found += [_with_unknown(schema, about, registry), *_with_symbols(schema, registry)]
    found += [
        example(schema, registry, logical_dtype=dtype)
        for dtype in schema.logical_dtypes
        if about == "dtype"
    ]
    yield from (_as_stored(record, schema, registry) for record in found if record is not None)


def _as_stored(record: Record, schema: Schema, registry: Registry) -> Record:
    """The record as a file has it, without attributes that are as their absence means."""
    needed = without_defaults(schema, record.attributes, registry)
    return replace(record, attributes=FrozenMap(needed))


def _with_field(schema: Schema, about: str, registry: Registry) -> Iterator[Record | None]:
    field = schema.by_name.get(about)
    if field is None or field.removed:
        return
    for record in _of_field(schema, field, registry):
        yield record
        if record is not None and about != field.name:
            yield record.rename(**{field.name: about})  # under its older name


def _of_field(schema: Schema, field: Field, registry: Registry) -> Iterator[Record | None]:
    yield example(schema, registry, held={field.name})
    for dtype in field.dtypes:
        yield example(schema, registry, held={field.name}, dtypes={field.name: dtype})
    if field.type.endswith("?"):
        yield example(schema, registry, values={field.name: None})


def _with_symbols(schema: Schema, registry: Registry) -> Iterator[Record | None]:
    """A record for each symbol of each enum attribute: a tensor may depend on it."""
    for field in schema.attributes:
        enum = registry.enums.get(field.type.removesuffix("?").removeprefix("enum:"))
        if enum is not None:
            for name in enum.symbols:
                yield example(schema, registry, values={field.name: Symbol(enum.type, name)})


def _with_unknown(schema: Schema, prefix: str, registry: Registry) -> Record | None:
    """A record with a field of a group that need not be known."""
    record = example(schema, registry)
    if record is None:
        return None
    if prefix in schema.holds:
        return record.put(**{f"{prefix}x": SlotPart(f"{prefix}x", "float32", (1,))})
    return record.set(**{f"{prefix}x": 1}) if prefix in schema.ignorable else None
