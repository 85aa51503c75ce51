"""The smallest records that a schema allows. Torch-free.

Lengths are chosen so that every rule of shapes divides evenly: the length of a name is the least
common multiple of the numbers it is divided by, integer attributes are 1, and blocks are single
elements.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice

from aoserial.errors import AoserialError
from aoserial.record import Record
from aoserial.schema import (
    BLOCKS,
    Field,
    FrozenMap,
    Nested,
    Registry,
    Schema,
    Symbol,
    Value,
    resolve,
)
from aoserial.schema.shapes import NUMEL, Rule
from aoserial.storage import SlotPart

_SAMPLES: dict[str, tuple[Value, ...]] = {
    "bool": (True, False),
    "int": (1, 2),
    "float": (0.5, 0.25),
    "str": ("x", "y"),
    "dtype": ("float16", "bfloat16"),
    "any": (1, 2),
}


class _NoneFits(Exception):  # noqa: N818 - never leaves this module
    """The schema asks for what cannot be had together."""


def example(
    schema: Schema,
    registry: Registry,
    *,
    held: Collection[str] = (),
    values: Mapping[str, Value] | None = None,
    dtypes: Mapping[str, str] | None = None,
    logical_dtype: str | None = None,
) -> Record | None:
    """A record of the schema that holds its required fields and those asked for, and no more.

    Args:
        registry: where the enums and objects that it names are found.
        held: optional fields to hold as well.
        values: of attributes, in place of samples.
        dtypes: of tensors, in place of the first that is allowed.

    Returns:
        None when no such record can be had.
    """
    try:
        record = _example(schema, registry, {*held, *(values or {})}, values or {}, dtypes or {})
    except _NoneFits:
        return None
    return Record(
        type=schema.type,
        version=schema.version,
        shape=record[0],
        dtype=logical_dtype or schema.logical_dtypes[0],
        attributes=FrozenMap(record[1]),
        parts=record[2],
    )


def nested_example(
    schema: Schema,
    registry: Registry,
    *,
    held: Collection[str] = (),
    values: Mapping[str, Value] | None = None,
) -> Nested | None:
    """The same for an attribute object."""
    found = example(schema, registry, held=held, values=values)
    return None if found is None else Nested(schema.type, schema.version, found.attributes)


_Fields = tuple[tuple[int, ...], dict[str, Value], dict[str, SlotPart]]


def _example(
    schema: Schema,
    registry: Registry,
    held: set[str],
    values: Mapping[str, Value],
    dtypes: Mapping[str, str],
) -> _Fields:
    tensors = {
        field.name: field for field in schema.tensors if field.required or field.name in held
    }
    attributes = _asked(schema, registry, tensors, held, values)
    shown = [schema.dims, *(field.shape for field in tensors.values())]
    rules = [rule for rule in shown if rule is not None and rule != BLOCKS]
    logical, lengths = _lengths(schema.dims, rules)
    wanted = {text for rule in rules for term in rule for text in term.split("/")[1:]}
    for field in schema.attributes:
        if field.name in wanted:
            attributes[field.name] = 1
        elif field.required or field.name in held:
            attributes.setdefault(field.name, _other(field, registry))
    if BLOCKS in shown:
        attributes["block_size"] = (1,) * len(logical)
    attributes |= values
    parts = {
        name: SlotPart(
            name, dtypes.get(name) or (*field.dtypes, "float32")[0], _shape(field, logical, lengths)
        )
        for name, field in tensors.items()
    }
    try:
        resolve(schema, shape=logical, attributes=attributes, parts=parts, registry=registry)
    except AoserialError:
        raise _NoneFits from None
    return logical, attributes, parts


def _asked(
    schema: Schema,
    registry: Registry,
    tensors: dict[str, Field],
    held: set[str],
    values: Mapping[str, Value],
) -> dict[str, Value]:
    """The enum attributes on which tensors depend, set so that those held are asked for and no
    others; a tensor that the symbol asks for all the same is added to `tensors`."""
    chosen: dict[str, Value] = {}
    conditions = [(field, *field.when) for field in schema.tensors if field.when is not None]
    for attribute in dict.fromkeys(name for _, name, _ in conditions):
        declared = schema.by_name.get(attribute)
        enum = registry.enums.get(_enum(declared.type)) if declared else None
        if declared is None or enum is None:
            continue
        rows = [(field, symbols) for field, name, symbols in conditions if name == attribute]
        given = values.get(declared.name)
        fitting = (
            [given.name]
            if isinstance(given, Symbol)
            else [
                name
                for name in enum.symbols
                if all((name in symbols) == (field.name in held) for field, symbols in rows)
            ]
            or list(enum.symbols)[:1]
        )
        if not fitting:
            raise _NoneFits
        chosen[declared.name] = Symbol(enum.type, fitting[0])
        tensors |= {field.name: field for field, symbols in rows if fitting[0] in symbols}
    return chosen


def _enum(text: str) -> str:
    return text.removesuffix("?").removeprefix("enum:")


def _lengths(dims: Rule | None, rules: Iterable[Rule]) -> tuple[tuple[int, ...], dict[str, int]]:
    """The logical shape, and the length of every name in the rules."""
    lengths: dict[str, int] = {}
    for rule in rules:
        for term in rule:
            name, *divisors = term.split("/")
            if not name.isdecimal() and name != "...":
                numbers = math.prod(int(text) for text in divisors if text.isdecimal())
                lengths[name] = math.lcm(lengths.get(name, 1), numbers)
    elements = lengths.pop(NUMEL, 1)
    if dims is None:
        return (elements,), lengths | {NUMEL: elements}
    names = [term.split("/")[0] for term in dims if not term[:1].isdecimal() and term != "..."]
    if names:
        lengths[names[0]] *= elements
    logical = _evaluate(dims, lengths)
    return logical, lengths | {NUMEL: math.prod(logical)}


def _shape(field: Field, logical: tuple[int, ...], lengths: Mapping[str, int]) -> tuple[int, ...]:
    if field.shape is None:
        return (1,)
    return logical if field.shape == BLOCKS else _evaluate(field.shape, lengths)


def _evaluate(rule: Rule, lengths: Mapping[str, int]) -> tuple[int, ...]:
    """The shape that a rule gives, without leading dimensions and with every attribute 1."""
    shape = []
    for term in rule:
        if term != "...":
            name, *divisors = term.split("/")
            length = int(name) if name.isdecimal() else lengths[name]
            shape.append(length // math.prod(int(text) for text in divisors if text.isdecimal()))
    return tuple(shape)


def _other(field: Field, registry: Registry) -> Value:
    """A value of an attribute that is not what its absence means, since that is not written."""
    samples = list(_samples(field.type, registry))
    return next((one for one in samples if repr(one) != repr(field.absent)), samples[0])


def _samples(text: str, registry: Registry) -> Iterator[Value]:
    text = text.removesuffix("?")
    if text.startswith("list["):
        yield tuple(islice(_samples(text[5:-1], registry), 1))
        yield ()
    elif text.startswith("enum:"):
        enum = registry.enums.get(text[5:])
        if enum is None or not enum.symbols:
            raise _NoneFits
        yield from (Symbol(enum.type, name) for name in enum.symbols)
    elif text.startswith("object:"):
        found = registry.types.get(text[7:])
        nested = nested_example(found.head, registry) if found else None
        if nested is None:
            raise _NoneFits
        yield nested
    else:
        yield from _SAMPLES[text]
