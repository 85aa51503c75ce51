"""Registering classes: `@register` for one's own, `register_class` for other people's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import is_dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TypeVar

import torch

from aoserial.errors import SchemaError
from aoserial.schema import EnumSchema, Schema
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import (
    CLASSES,
    Classes,
    EnumClass,
    ObjectClass,
    TensorClass,
    owner,
)
from aoserial.tensors.declare import bind_fields, declare_fields, declare_object
from aoserial.tensors.fieldspec import first_line
from aoserial.tensors.listed import declare_lists, is_listed

_Class = TypeVar("_Class", bound=type)


def register(
    type: str,  # noqa: A002
    *,
    version: int = 1,
    schemas: str | Path | None = None,
    fallback: str | None = None,
    classes: Classes = CLASSES,
) -> Callable[[_Class], _Class]:
    """Decorates a class of one's own with its type id.

    Args:
        type: two or more dotted identifiers, `acme.Int4Tensor`. It is in every file; the class may
            be renamed and moved, the id may not.
        version: of a tensor class or dataclass: that of its fields as they are now.
        schemas: folder of frozen documents, `<type id>/<version>.json`.
        fallback: of an enum: the member that stands for one a newer program added; without it a
            file that holds such a member is refused.

    The class may be a `VersionedTensor`, a frozen dataclass (then its instances can be attributes)
    or an Enum (its members are stored by name). The same qualified name may be registered again,
    as a notebook does that runs a cell twice.

    Raises:
        SchemaError: the id is another class's, or the class is nothing a file can hold.
    """

    def decorate(cls: _Class) -> _Class:
        classes.check_free(type, cls)
        if issubclass(cls, Enum):
            symbols = dict.fromkeys(cls.__members__, "")  # names of aliases too
            enum = EnumSchema(type=type, symbols=symbols, fallback=fallback, doc=first_line(cls))
            classes.schemas.enums[type] = enum  # check_free saw that nobody else owns the id
            classes.add(EnumClass(cls=cls, schema=enum))
            return cls
        if fallback is not None:
            raise SchemaError(f"{owner(cls)} is no enum and has no fallback")
        _add(_declare(cls, type, version, classes), schemas, classes)
        return cls

    return decorate


def register_class(
    cls: type[torch.Tensor],
    *,
    type: str,  # noqa: A002
    version: int = 1,
    schemas: str | Path | None = None,
    classes: Classes = CLASSES,
) -> None:
    """Registers a tensor class that somebody else owns.

    Args:
        cls: a torch.Tensor subclass with torchao's lists (`tensor_data_names` …) and a constructor
            that takes what they name.
        type: an id for it.
        version: of its fields as they are now.
        schemas: folder of frozen documents.

    Raises:
        SchemaError: the id is another class's, or the class does not list its fields.
    """
    classes.check_free(type, cls)
    if not is_listed(cls):
        raise SchemaError(
            f"{owner(cls)} has no tensor_data_names and tensor_attribute_names of its own"
        )
    _add(declare_lists(cls, type, version, classes), schemas, classes)


def bind(schema: Schema | EnumSchema, classes: Classes = CLASSES) -> Callable[[_Class], _Class]:
    """Decorates the class of a type whose schema is declared elsewhere, torch-free.

    Raises:
        SchemaError: the class declares other fields than the schema.
    """

    def decorate(cls: _Class) -> _Class:
        classes.check_free(schema.type, cls)
        if isinstance(schema, EnumSchema):
            if not issubclass(cls, Enum) or set(cls.__members__) != set(schema.symbols):
                raise SchemaError(f"{owner(cls)} has other members than {schema.type}")
            classes.add(EnumClass(cls=cls, schema=schema))
        elif issubclass(cls, VersionedTensor):
            declared = declare_fields(cls, schema.type, schema.version, classes)
            _check_equal(declared.schema, schema)
            classes.add(bind_fields(cls, schema, declared.hints, classes))
        else:
            found = declare_object(cls, schema.type, schema.version, classes)
            _check_equal(found.schema, schema)
            classes.add(replace(found, schema=schema))
        return cls

    return decorate


def _declare(cls: type, type_id: str, version: int, classes: Classes) -> TensorClass | ObjectClass:
    if issubclass(cls, VersionedTensor):
        declare = declare_lists if is_listed(cls) else declare_fields
        return declare(cls, type_id, version, classes)
    if issubclass(cls, torch.Tensor):
        raise SchemaError(f"{owner(cls)} is no VersionedTensor; use aoserial.register_class for it")
    if not is_dataclass(cls):
        raise SchemaError(f"{owner(cls)} is no VersionedTensor, dataclass or Enum")
    if cls.__hash__ is None:
        raise SchemaError(f"{owner(cls)} does not hash; make it @dataclass(frozen=True)")
    return declare_object(cls, type_id, version, classes)


def _add(entry: TensorClass | ObjectClass, schemas: str | Path | None, classes: Classes) -> None:
    frozen = None if schemas is None else Path(schemas)
    classes.schemas.add(entry.schema, owner=owner(entry.cls), frozen=frozen)
    classes.add(entry)


def _check_equal(found: Schema, schema: Schema) -> None:
    """Raises `SchemaError` unless a class declares what decides how a file is read."""
    ours, theirs = (
        {field.name: (field.kind, field.type, field.absent) for field in each.live_fields}
        for each in (found, schema)
    )
    if ours != theirs:
        names = sorted(name for name in ours | theirs if ours.get(name) != theirs.get(name))
        raise SchemaError(f"the class of {schema} declares otherwise: {', '.join(names)}")
