"""A class as a schema: the fields of a tensor class, or of a dataclass, from their annotations."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import MISSING as NO_DEFAULT, fields as dataclass_fields
from typing import Any, ClassVar, get_origin

from aoserial.errors import SchemaError, locating
from aoserial.schema import MISSING, Field, Missing, Schema
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import LISTS, WRAPPER_NAMES, Classes, ObjectClass, TensorClass, owner
from aoserial.tensors.fieldspec import (
    FieldSpec,
    check_name,
    first_line,
    resolve_annotation,
    schema_field,
    type_text,
)
from aoserial.tensors.hints import Hint, hint
from aoserial.tensors.live import load


def declare_fields(
    cls: type[VersionedTensor], type_id: str, version: int, classes: Classes
) -> TensorClass:
    """The declaration of a tensor class whose fields are annotations.

    Raises:
        SchemaError: a field that no file can hold, or whose name every tensor has.
    """
    hints: dict[str, Hint] = {}
    fields: list[Field] = []
    for name, annotation, spec in _annotated(cls):
        with locating(field=name):
            check_name(name, cls)
            hints[name] = hint(annotation, type_text(classes))
            fields.append(schema_field(name, hints[name], spec, classes))
    for name, removed_in in cls.removed.items():
        fields.append(Field(name=name, kind="attribute", removed_in=removed_in))
    schema = Schema(
        type=type_id,
        version=version,
        fields=tuple(fields),
        dims=None if cls.dims is None else tuple(cls.dims),
        ignorable=tuple(cls.ignorable),
        doc=first_line(cls),
    )
    return bind_fields(cls, schema, hints, classes)


def bind_fields(
    cls: type[VersionedTensor], schema: Schema, hints: Mapping[str, Hint], classes: Classes
) -> TensorClass:
    """A class with annotated fields, over the schema that says what they are in a file.

    Gives the class its four lists, its signature and the defaults of its optional fields.
    """
    order = _order(schema)
    if not order[0]:
        raise SchemaError(f"{owner(cls)} declares no tensor that every instance has")
    for field in schema.fields:
        if field.name in vars(cls):  # a default, or what `field` made
            delattr(cls, field.name)
    parameters: list[inspect.Parameter] = []
    for name in (name for names in order for name in names):
        default = schema.by_name[name].new_object_default
        live: Any = inspect.Parameter.empty
        if not isinstance(default, Missing):
            live = load(default, hints.get(name, Hint()), classes)
            setattr(cls, name, live)
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        parameters.append(inspect.Parameter(name, kind, default=live))
    for names, held in zip(LISTS, order, strict=True):
        setattr(cls, names, list(held))
    cls.__signature__ = inspect.Signature([*_defaults_last(parameters), *_WRAPPER])
    return TensorClass(
        cls=cls,
        schema=schema,
        hints={name: hints[name] for name in order[1] + order[3]},
        signature=inspect.Signature(_defaults_last(parameters)),
        tensors=order[0] + order[2],
        attributes=order[1] + order[3],
    )


def declare_object(cls: type, type_id: str, version: int, classes: Classes) -> ObjectClass:
    """The declaration of a dataclass whose instances are attributes."""
    hints: dict[str, Hint] = {}
    fields: list[Field] = []
    for declared in dataclass_fields(cls):
        with locating(field=declared.name):
            annotation = resolve_annotation(declared.type, cls)
            hints[declared.name] = hint(annotation, type_text(classes))
            default = declared.default
            if declared.default_factory is not NO_DEFAULT:
                default = declared.default_factory()
            spec = FieldSpec() if default is NO_DEFAULT else FieldSpec(default=default)
            fields.append(schema_field(declared.name, hints[declared.name], spec, classes))
    schema = Schema(
        type=type_id, version=version, kind="object", fields=tuple(fields), doc=first_line(cls)
    )
    return ObjectClass(cls=cls, schema=schema, hints=hints)


_WRAPPER = tuple(
    inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None)
    for name in ("shape", "dtype")
)


def _annotated(cls: type[VersionedTensor]) -> Iterator[tuple[str, object, FieldSpec]]:
    """Name, evaluated annotation and spec of each field, base classes first."""
    found: dict[str, tuple[object, FieldSpec]] = {}
    for base in reversed(cls.__mro__):
        if base is VersionedTensor or not issubclass(base, VersionedTensor):
            continue
        for name, raw in inspect.get_annotations(base).items():
            annotation = resolve_annotation(raw, base)
            skipped = name in WRAPPER_NAMES or name.startswith("_")
            if not skipped and ClassVar not in (annotation, get_origin(annotation)):
                found[name] = (annotation, _spec(base, name))
    for name, (annotation, spec) in found.items():
        yield name, annotation, spec


def _spec(cls: type[VersionedTensor], name: str) -> FieldSpec:
    """The spec as the class body has it; kept, since binding puts live defaults in its place."""
    if "_specs" not in vars(cls):
        names = inspect.get_annotations(cls)
        cls._specs = {name: vars(cls)[name] for name in names if name in vars(cls)}
    value = cls._specs.get(name, MISSING)
    return value if isinstance(value, FieldSpec) else FieldSpec(default=value)


def _order(schema: Schema) -> tuple[tuple[str, ...], ...]:
    """Required tensors, required attributes, optional tensors, optional attributes."""
    return tuple(
        tuple(field.name for field in fields if field.required is required)
        for required in (True, False)
        for fields in (schema.tensors, schema.attributes)
    )


def _defaults_last(parameters: list[inspect.Parameter]) -> list[inspect.Parameter]:
    """Makes keyword-only what stands behind a parameter with a default and has none itself."""
    ordered: list[inspect.Parameter] = []
    seen_default = False
    for parameter in parameters:
        has_default = parameter.default is not inspect.Parameter.empty
        seen_default |= has_default
        keyword_only = seen_default and not has_default
        kind = inspect.Parameter.KEYWORD_ONLY if keyword_only else parameter.kind
        ordered.append(parameter.replace(kind=kind))
    return sorted(ordered, key=lambda parameter: parameter.kind)
