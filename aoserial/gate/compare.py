"""What of one version differs between two of its schemas, under the rules. Torch-free, pure.

Only the tables here know which difference breaks which rule; whether it truly breaks a file is for
`witness`, which asks the resolver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from aoserial.schema import BLOCKS, EnumSchema, Field, Missing, Schema, Symbol, Value


@dataclass(frozen=True, slots=True)
class Difference:
    """A rule that a change breaks, the field it is about (empty for the whole) and in words."""

    rule: str
    field: str
    message: str


def compare(old: Schema, new: Schema) -> Iterator[Difference]:
    """The differences between two schemas of one type and version.

    Yields nothing for what may change freely: words, and what new objects get.
    """
    if old.kind != new.kind:
        yield Difference("TYPE_SAME_KIND", "", f"was a {old.kind}, is a {new.kind}")
        return
    yield from _whole(old, new)
    kept = {new.by_name[name].name for name in old.by_name if name in new.by_name}
    added = [field for field in new.live_fields if field.name not in kept]
    taken: dict[str, str] = {}  # field of the new schema → that of the old one it was
    for field in old.fields:
        found = new.by_name.get(field.name)
        if field.removed:
            yield from _reserved(field, found)
            continue
        twin = next((one for one in added if found is None and _alike(field, one)), None)
        if twin is not None:
            added.remove(twin)
            message = f"is gone, and {twin.name!r} is like it"
            yield Difference("FIELD_RENAMED_WITHOUT_ALIAS", field.name, message)
        elif found is None or found.removed or found.name in taken:
            yield Difference("FIELD_NO_DELETE_UNLESS_RESERVED", field.name, _gone(found, taken))
        else:
            taken[found.name] = field.name
            yield from _field(field, found, new)
            yield from _references(field, old, new)
    for field in added:
        yield from _added(field, old, new)


def _reserved(old: Field, found: Field | None) -> Iterator[Difference]:
    if found is None:
        yield Difference("RESERVED_NAME_NO_DELETE", old.name, "was reserved, and is free again")
    elif not found.removed:
        yield Difference("RESERVED_NAME_REUSED", old.name, "was removed, and is back")


def _gone(found: Field | None, taken: dict[str, str]) -> str:
    if found is None:
        return "is gone: files that hold it are refused"
    if found.removed:
        return "was removed within the version: files that hold it are refused"
    return f"became another name of {found.name!r}, as {taken[found.name]!r} did"


def _whole(old: Schema, new: Schema) -> Iterator[Difference]:
    if old.dims != new.dims:
        message = f"dimensions were {_rule(old.dims)}, are {_rule(new.dims)}"
        yield Difference("SHAPE_CONSTRAINT_CHANGED", "shape", message)
    if old.logical_dtypes != new.logical_dtypes:
        message = _change(old.logical_dtypes, new.logical_dtypes)
        yield Difference("LOGICAL_DTYPE_CHANGED", "dtype", message)
    for prefix in old.ignorable:
        if not prefix.startswith(new.ignorable):
            message = f"fields {prefix}… can no more be ignored"
            yield Difference("IGNORABLE_NARROWED", prefix, message)
    for prefix in old.holds:
        if not prefix.startswith(new.holds):
            yield Difference("HOLDS_NARROWED", prefix, f"parts {prefix}… are no more held")
    for prefix in new.holds:
        if not prefix.startswith(old.holds):
            yield Difference("HOLDS_WIDENED", prefix, f"parts {prefix}… are held now")


def _field(old: Field, new: Field, new_schema: Schema) -> Iterator[Difference]:
    """A field that both have."""
    if old.kind != new.kind:
        yield Difference("FIELD_SAME_KIND", old.name, f"was a {old.kind}, is a {new.kind}")
        return
    for rule, differs in _FIELD_RULES:
        message = differs(old, new)
        if message:
            yield Difference(rule, old.name, message)
    for name in old.renamed_from:
        if new_schema.by_name.get(name) is not new:
            yield Difference("FIELD_ALIAS_NO_DELETE", name, f"is no older name of {new.name!r} now")


def _references(field: Field, old: Schema, new: Schema) -> Iterator[Difference]:
    """A rule of a field that names an attribute, which has another name now."""
    divisors = {text for term in field.shape or () for text in term.split("/")[1:]}
    named = divisors | ({"block_size"} if field.shape == BLOCKS else set())
    tables = (
        ("SHAPE_CONSTRAINT_CHANGED", named),
        ("FIELD_SAME_CONDITION", {field.when[0]} if field.when else set()),
    )
    for rule, names in tables:
        for name in sorted(names & old.by_name.keys()):
            found = new.by_name.get(name)
            if found is not None and not found.removed and found.name != name:
                message = f"depends on {name!r}, which is called {found.name!r} now"
                yield Difference(rule, field.name, message)


def _absence(old: Field, new: Field) -> str:
    if old.required or new.required or _same(old.absent, new.absent):
        return ""
    return f"absence meant {old.absent!r}, means {new.absent!r}"


def _narrowed(old: Field, new: Field) -> str:
    if not new.dtypes or (old.dtypes and set(old.dtypes) <= set(new.dtypes)):
        return ""
    return _change(old.dtypes, new.dtypes)


def _widened(old: Field, new: Field) -> str:
    if _narrowed(old, new) or set(old.dtypes) == set(new.dtypes):
        return ""
    return _change(old.dtypes, new.dtypes)


_FIELD_RULES: tuple[tuple[str, Callable[[Field, Field], str]], ...] = (
    (
        "FIELD_OPTIONAL_TO_REQUIRED",
        lambda old, new: "was optional, is required" if new.required > old.required else "",
    ),
    (
        "FIELD_REQUIRED_TO_OPTIONAL",
        lambda old, new: "was required, is optional" if new.required < old.required else "",
    ),
    (
        "FIELD_SAME_TYPE",
        lambda old, new: f"was {old.type}, is {new.type}" if old.type != new.type else "",
    ),
    ("FIELD_SAME_ABSENCE_DEFAULT", _absence),
    ("TENSOR_DTYPE_NARROWED", _narrowed),
    ("TENSOR_DTYPE_WIDENED", _widened),
    (
        "SHAPE_CONSTRAINT_CHANGED",
        lambda old, new: (
            f"was {_rule(old.shape)}, is {_rule(new.shape)}" if old.shape != new.shape else ""
        ),
    ),
    (
        "FIELD_SAME_CONDITION",
        lambda old, new: f"was {old.when}, is {new.when}" if old.when != new.when else "",
    ),
    (
        "FIELD_RENAMED",
        lambda old, new: f"is now {new.name!r}" if old.name != new.name else "",
    ),
)


def _added(field: Field, old: Schema, new: Schema) -> Iterator[Difference]:
    """A field that only the new schema has."""
    if field.required:
        yield Difference("FIELD_ADDED_REQUIRED", field.name, "is new and required")
    elif field.when is not None and _may_ask(field, old, new):
        attribute, symbols = field.when
        message = f"is new, and required where {attribute} is {' or '.join(symbols)}"
        yield Difference("FIELD_ADDED_REQUIRED", field.name, message)
    elif not old.is_ignorable(field.name):
        yield Difference("FIELD_ADDED", field.name, "is new: older readers refuse files with it")


def _may_ask(field: Field, old: Schema, new: Schema) -> bool:
    """Whether an old record can hold, or be taken to hold, a symbol that asks for the field."""
    assert field.when is not None
    attribute, symbols = field.when
    if attribute in old.by_name:
        return True
    declared = new.by_name.get(attribute)
    absent = declared.absent if declared else None
    return isinstance(absent, Symbol) and absent.name in symbols


def _alike(old: Field, new: Field) -> bool:
    """Whether two fields could be one under two names."""

    def facts(field: Field) -> tuple[object, ...]:
        return (field.kind, field.type, set(field.dtypes), field.shape, field.required, field.when)

    return facts(old) == facts(new)


def _same(one: Value | Missing, other: Value | Missing) -> bool:
    """Equal and of one type: 0, 0.0 and False are equal and are not the same."""
    return repr(one) == repr(other)


def compare_enums(old: EnumSchema, new: EnumSchema) -> Iterator[Difference]:
    """The differences between two states of an enum."""
    for name in old.symbols:
        if name not in new.symbols:
            yield Difference("ENUM_VALUE_NO_DELETE", name, "is gone: files that hold it remain")
    if old.fallback is not None and new.fallback != old.fallback:
        message = f"the fallback was {old.fallback}, is {new.fallback}"
        yield Difference("ENUM_SAME_FALLBACK", old.fallback, message)
    for name in new.symbols:
        if name not in old.symbols and old.fallback is None:
            yield Difference("ENUM_VALUE_ADDED", name, "is new, and older readers have no fallback")


def _rule(rule: tuple[str, ...] | None) -> str:
    return "any" if rule is None else f"({', '.join(rule)})"


def _change(old: tuple[str, ...], new: tuple[str, ...]) -> str:
    return f"was {', '.join(old) or 'any'}, is {', '.join(new) or 'any'}"
