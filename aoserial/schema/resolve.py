"""Resolution: what a reader does with the fields a writer wrote, at one version. Torch-free.

Required fields must be there; optional ones take what their absence means; older names become
the field's own; unknown ones are an error unless their group is ignorable; then dtypes, shapes and
attribute types are checked. Nothing is cast, broadcast or guessed. Every fault of a record is
found, not only the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aoserial.errors import (
    AoserialError,
    FieldError,
    MissingFieldError,
    ReservedFieldError,
    UnknownFieldError,
    escape,
    raise_all,
)
from aoserial.schema.fields import Field
from aoserial.schema.registry import Registry
from aoserial.schema.schema import Schema
from aoserial.schema.shapes import ShapeMatch
from aoserial.schema.types import conform
from aoserial.schema.values import FrozenMap, Missing, Nested, Symbol, Value
from aoserial.storage.part import Part, Shape


@dataclass(kw_only=True)
class Resolution:
    """The fields of one record after resolution.

    Attributes:
        attributes: every attribute of the schema, by its present name.
        parts: the tensors that are there, by their present name.
        defaulted: optional fields the record did not declare.
        renamed: older name → present name, for those that were used.
        ignored: unknown fields of ignorable groups; they stay in `attributes` and `parts`.
        replaced: unknown enum symbols that the enum's own fallback stands for.
    """

    attributes: dict[str, Value] = field(default_factory=dict)
    parts: dict[str, Part] = field(default_factory=dict)
    defaulted: list[str] = field(default_factory=list)
    renamed: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)


def resolve(
    schema: Schema,
    *,
    shape: Shape,
    attributes: Mapping[str, Value],
    parts: Mapping[str, Part],
    registry: Registry,
) -> Resolution:
    """Resolves the fields of a record against the schema of its own version.

    Args:
        shape: the logical shape.
        attributes: as stored, nested objects already at versions that `registry` knows.
        parts: as stored; only their dtypes and shapes are looked at.

    Raises:
        FieldError: one fault; `Faults` when there are several.
    """
    resolution = Resolution()
    faults: list[AoserialError] = []
    for kind, given in (("attribute", attributes), ("tensor", parts)):
        for name, value in given.items():
            try:
                _place(schema, kind, name, value, resolution)
            except AoserialError as fault:
                faults.append(fault.locate(field=name))
    for declared in schema.live_fields:
        held = resolution.parts if declared.kind == "tensor" else resolution.attributes
        if declared.name in held:
            continue
        if isinstance(declared.absent, Missing):
            missing = MissingFieldError(f"required {declared.kind} {declared.name!r} is missing")
            faults.append(missing.locate(field=declared.name))
            continue
        resolution.defaulted.append(declared.name)
        if declared.kind == "attribute":
            resolution.attributes[declared.name] = declared.absent
    if not faults:
        faults = _check_values(schema, shape, resolution, registry)
    raise_all(f"{schema}: {len(faults)} faults", faults)
    return resolution


def _place(schema: Schema, kind: str, name: str, value: object, resolution: Resolution) -> None:
    """Files one stored field under its present name."""
    declared = schema.by_name.get(name)
    if declared is None and kind == "tensor" and name.startswith(schema.holds):
        resolution.parts[name] = value  # type: ignore[assignment]  # a part, since a tensor
        return
    held: dict[str, object] = resolution.parts if kind == "tensor" else resolution.attributes  # type: ignore[assignment]
    if declared is None:
        if not schema.is_ignorable(name):
            raise UnknownFieldError(
                f"{schema} has no {kind} {escape(name)!r}; a newer writer may have added it"
            )
        resolution.ignored.append(name)
        held[name] = value
        return
    if declared.removed:
        raise ReservedFieldError(
            f"{kind} {name!r} was removed in version {declared.removed_in} of {schema.type}; "
            f"its name is reserved"
        )
    if declared.kind != kind:
        raise FieldError(f"{name!r} is stored as a {kind}, {schema} has it as a {declared.kind}")
    if declared.name in held:
        raise ReservedFieldError(
            f"{name!r} and another name of the same field ({declared.name!r}) are both present"
        )
    if name != declared.name:
        resolution.renamed[name] = declared.name
    held[declared.name] = value


def _check_values(
    schema: Schema, shape: Shape, resolution: Resolution, registry: Registry
) -> list[AoserialError]:
    faults: list[AoserialError] = []
    for declared in schema.attributes:
        try:
            value = conform(declared.type, resolution.attributes[declared.name])
            resolution.attributes[declared.name] = check_members(
                value, registry, resolution.replaced
            )
        except AoserialError as fault:
            faults.append(fault.locate(field=declared.name))
    shapes = ShapeMatch(shape, resolution.attributes)
    if schema.dims is not None:
        try:
            shapes.match(schema.dims, shape)
        except AoserialError as fault:
            return [*faults, fault.locate(field="shape")]
    for declared in schema.tensors:
        part = resolution.parts.get(declared.name)
        try:
            _check_presence(declared, part, resolution.attributes)
            if part is not None:
                _check_part(declared, part, shapes)
        except AoserialError as fault:
            faults.append(fault.locate(field=declared.name))
    return faults


def _check_presence(declared: Field, part: Part | None, attributes: Mapping[str, Value]) -> None:
    """Holds an optional tensor against the attribute that asks for it."""
    if declared.when is None:
        return
    name, symbols = declared.when
    value = attributes.get(name)
    asked = isinstance(value, Symbol) and value.name in symbols
    if asked and part is None:
        raise MissingFieldError(f"is missing, though {name} is {value!r}, which needs it")
    if part is not None and not asked:
        raise FieldError(f"is there, though {name} is {value!r}, which has no use for it")


def _check_part(declared: Field, part: Part, shapes: ShapeMatch) -> None:
    if declared.dtypes and part.dtype not in declared.dtypes:
        raise FieldError(f"dtype is {part.dtype}, expected {' or '.join(declared.dtypes)}")
    if declared.shape is not None:
        shapes.match(declared.shape, part.shape)


def check_members(value: Value, registry: Registry, replaced: list[str]) -> Value:
    """`value` with every enum symbol known and every nested object resolved at its version.

    Args:
        replaced: takes a line for each symbol that its enum's fallback stood in for.

    Raises:
        FieldError: an unknown symbol of an enum without a fallback, or a fault inside an object.
    """
    if isinstance(value, tuple):
        return tuple(check_members(item, registry, replaced) for item in value)
    if isinstance(value, Symbol):
        return _check_symbol(value, registry, replaced)
    if isinstance(value, Nested):
        schema = registry.schema(value.type, value.version)
        if schema is None:
            raise FieldError(f"no schema of {value.type}@{value.version} is known")
        inside = resolve(schema, shape=(), attributes=value.fields, parts={}, registry=registry)
        replaced += inside.replaced
        return Nested(value.type, value.version, FrozenMap(inside.attributes))
    return value


def _check_symbol(symbol: Symbol, registry: Registry, replaced: list[str]) -> Symbol:
    schema = registry.enums.get(symbol.enum)
    if schema is None:
        raise FieldError(f"no enum {symbol.enum!r} is registered")
    if symbol.name in schema.symbols:
        return symbol
    if schema.fallback is not None:
        replaced.append(f"{symbol.enum}.{escape(symbol.name)} → {schema.fallback}")
        return Symbol(symbol.enum, schema.fallback)
    known = ", ".join(schema.symbols)
    raise FieldError(f"{escape(symbol.name)!r} is no symbol of {symbol.enum}; known are {known}")


def without_defaults(
    schema: Schema, attributes: Mapping[str, Value], registry: Registry
) -> dict[str, Value]:
    """The attributes a file needs: those that differ from what their absence means.

    So a file that uses nothing new stays readable by readers that do not know the new field.
    """
    needed: dict[str, Value] = {}
    for name, value in attributes.items():
        declared = schema.by_name.get(name)
        if declared is None or not _is_default(value, declared.absent):
            needed[name] = _shorten(value, registry)
    return needed


def _shorten(value: Value, registry: Registry) -> Value:
    if isinstance(value, tuple):
        return tuple(_shorten(item, registry) for item in value)
    if isinstance(value, Nested):
        schema = registry.schema(value.type, value.version)
        if schema is not None:
            fields = without_defaults(schema, value.fields, registry)
            return Nested(value.type, value.version, FrozenMap(fields))
    return value


def _is_default(value: Value, absent: Value | Missing) -> bool:
    return type(value) is type(absent) and value == absent  # 0, 0.0 and False are equal
