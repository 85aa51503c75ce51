"""torchao's tensors in pickles: from class paths and raw fields to types and versions. Torch-free.

A raw record (`record.pickled`) names classes by the paths under which they were pickled. The tables
say which type a path stood for, what its helper objects and enums were, and by which fields the
forms of a type are told apart, since no file says which release wrote it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aoserial.errors import EraError
from aoserial.record import Era, Record, shared
from aoserial.record.raw import PREFIX
from aoserial.schema import REGISTRY, FrozenMap, Nested, Schema, Symbol, Value
from aoserial.torchao.classes import CLASSES, ENUMS, OBJECTS
from aoserial.torchao.eras import era_of_form, eras_of_fields, eras_of_values
from aoserial.torchao.forms import Form, PickledEnum, PickledObject, PickledType
from aoserial.torchao.wrapping import inner_of, inside

_SHAPE, _DTYPE = _OF_TENSORS = ("(shape)", "(dtype)")  # of a tensor inside another
_TYPES: dict[str, PickledType] = {PREFIX + path: kind for kind in CLASSES for path in kind.paths}
_OBJECTS: dict[str, PickledObject] = {
    PREFIX + path: kind for kind in OBJECTS for path in kind.paths
}
_ENUMS: dict[str, PickledEnum] = {PREFIX + path: kind for kind in ENUMS for path in kind.paths}


@dataclass(frozen=True, kw_only=True)
class Identified:
    """A record of torchao's type, and when it was written.

    Attributes:
        era: None where what the fields say does not go together.
    """

    record: Record
    era: Era | None


def identify(raw: Record) -> Identified | None:
    """The record of torchao's type that a raw record is, its parts the same in the same order.

    Returns:
        None when its class, or that of a tensor inside it, is none that torchao is known to have
        pickled.

    Raises:
        EraError: its fields fit none of the type's forms, or several.
    """
    kind = _TYPES.get(raw.type)
    if kind is None:
        return None
    form = _form(kind, raw)
    translation = _Translation(form, raw)
    attributes = translation.fields(raw.attributes)
    if translation.unknown:
        return None
    record = Record(
        type=form.type or kind.type,
        version=form.version,
        shape=raw.shape,
        dtype=raw.dtype,
        attributes=FrozenMap(attributes),
        parts=raw.parts,
    )
    record = form.adapt(record)
    schema = REGISTRY.schema(record.type, record.version)
    eras = [era_of_form(form, schema), *translation.eras, *eras_of_values(attributes.values())]
    if schema is not None:
        record = _fitted(record, schema)
        held = {*raw.attributes, *raw.parts, *record.attributes, *record.parts}
        eras += eras_of_fields(schema, held, "attribute tensor")
    return Identified(record=record, era=shared(eras))


def _form(kind: PickledType, raw: Record) -> Form:
    """The one form whose evidence the fields show."""
    fitting = [form for form in kind.forms if form.shows(raw)]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(sorted([*raw.attributes, *raw.parts]))
    candidates = fitting or kind.forms
    raise EraError(
        f"{kind.type} with the fields {names:.300} fits "
        f"{'several' if fitting else 'none'} of the forms that torchao wrote: "
        f"{'; '.join(f'{form.releases} ({form.evidence})' for form in candidates)}",
        candidates=tuple(form.releases for form in candidates),
    )


def _fitted(record: Record, schema: Schema) -> Record:
    """The record without attributes that are None because a tensor is absent, and with the logical
    shape and dtype where torchao's safetensors form has them as attributes."""
    absent = [
        name
        for name, value in record.attributes.items()
        if value is None and name in schema.by_name and schema.by_name[name].kind == "tensor"
    ]
    if absent:
        record = record.drop(*absent)
    known: dict[str, Value] = {"shape": record.shape, "dtype": record.dtype}
    lacking = {
        name: value
        for name, value in known.items()
        if name in schema.by_name
        and schema.by_name[name].kind == "attribute"
        and name not in record.attributes
    }
    return record.set(**lacking) if lacking else record


class _Translation:
    """Names of pickled helpers → torchao's own ids, as one form of a tensor type has them.

    Paths are those of parts, from the tensor that holds them all.

    Attributes:
        unknown: the raw types of tensors inside this one that no table has.
        eras: in which the tensors inside this one were written.
    """

    def __init__(self, form: Form, raw: Record) -> None:
        self._enums = form.enums
        self._raw = raw
        self.unknown: list[str] = []
        self.eras: list[Era | None] = []

    def fields(self, fields: Mapping[str, Value], path: str = "") -> dict[str, Value]:
        return {name: self.value(value, path + name) for name, value in fields.items()}

    def value(self, value: Value, path: str) -> Value:
        match value:
            case tuple():
                return tuple(self.value(item, f"{path}.{n}") for n, item in enumerate(value))
            case Symbol():
                return self._symbol(value)
            case Nested():
                return self._nested(value, path)
            case _:
                return value

    def _symbol(self, symbol: Symbol) -> Symbol:
        """An enum's member by name; pickles have its value, whose meaning depends on the era."""
        kind = _ENUMS.get(symbol.enum)
        if kind is None:
            return symbol
        names = self._enums.get(kind.type, kind.members)
        return Symbol(kind.type, names.get(symbol.name, symbol.name))

    def _nested(self, nested: Nested, path: str) -> Nested:
        kind = _OBJECTS.get(nested.type)
        plain = {name: value for name, value in nested.fields.items() if name not in _OF_TENSORS}
        if kind is None and len(plain) < len(nested.fields):
            return self._tensor(nested, plain, path)
        fields = self.fields(plain, f"{path}.")
        if kind is None:
            return Nested(nested.type, nested.version, FrozenMap(fields))
        for number, name in enumerate(kind.positional):
            if str(number) in fields:
                fields[name] = fields.pop(str(number))
        return Nested(kind.type_of(fields), 1, FrozenMap(fields))

    def _tensor(self, nested: Nested, fields: Mapping[str, Value], path: str) -> Nested:
        """A tensor inside this one, identified as if it were alone."""
        raw = Record(
            type=nested.type,
            version=1,
            shape=nested[_SHAPE],  # type: ignore[arg-type]  # as the walk wrote it
            dtype=nested[_DTYPE],  # type: ignore[arg-type]
            attributes=FrozenMap(fields),
            parts=inside(self._raw.parts, path),
        )
        found = identify(raw)
        if found is None:
            self.unknown.append(nested.type)
            return nested
        self.eras.append(found.era)
        return inner_of(found.record)
