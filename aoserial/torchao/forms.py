"""The kinds of rows that the tables of pickled torchao classes are made of. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from aoserial.record import Record


@dataclass(frozen=True, kw_only=True)
class Form:
    """One form of a type's fields, told by evidence that no other form of it shows.

    Attributes:
        version: of the type that records of this form are.
        type: that type, where it is not the one of the class's other forms.
        releases: of torchao that wrote it: `0.13 and 0.14`.
        has: fields (attributes or parts) that must be there.
        lacks: fields that must not be.
        test: further evidence, a pure function of the raw record.
        evidence: the same in words, for people.
        enums: enum id → its members by value, where they were others than later.
        adapt: what is to be done with a record after its helpers have their names: of plain data,
            it leaves parts alone.
    """

    version: int
    releases: str
    type: str | None = None
    has: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    test: Callable[[Record], bool] = lambda _: True
    note: str = ""
    enums: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    adapt: Callable[[Record], Record] = lambda record: record

    def shows(self, raw: Record) -> bool:
        """Whether a raw record has this form."""
        held = {*raw.attributes, *raw.parts}
        return held.issuperset(self.has) and held.isdisjoint(self.lacks) and self.test(raw)

    @property
    def evidence(self) -> str:
        words = [f"has {', '.join(self.has)}"] if self.has else []
        words += [f"lacks {', '.join(self.lacks)}"] if self.lacks else []
        words += [self.note] if self.note else []
        return "; ".join(words) or "always"


@dataclass(frozen=True, kw_only=True)
class PickledType:
    """A tensor class: its type, and every path under which releases pickled it."""

    type: str
    paths: tuple[str, ...]
    forms: tuple[Form, ...]


@dataclass(frozen=True, kw_only=True)
class PickledObject:
    """A helper object inside tensors.

    Attributes:
        type: the id it has in records.
        paths: under which releases pickled it.
        positional: field names of positional arguments, of a NamedTuple.
        older: a field that only an older form has → the id of that form.
    """

    type: str
    paths: tuple[str, ...]
    positional: tuple[str, ...] = ()
    older: Mapping[str, str] = field(default_factory=dict)

    def type_of(self, fields: Mapping[str, object]) -> str:
        """The id of an object with these fields."""
        return next((old for name, old in self.older.items() if name in fields), self.type)


@dataclass(frozen=True, kw_only=True)
class PickledEnum:
    """An enum inside tensors: pickles have its members by value.

    Attributes:
        type: the id it has in records.
        paths: under which releases pickled it.
        members: value as text → name, as most releases had it; a form says where others had not.
    """

    type: str
    paths: tuple[str, ...]
    members: Mapping[str, str]
