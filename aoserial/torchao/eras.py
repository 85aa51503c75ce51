"""Which releases of torchao wrote a form, a field or a member of an enum. Torch-free.

The tables say it in words beside what they declare: `0.13`, `0.13 and 0.14`, `0.7 to 0.11`, `up to
0.4`, `0.14 and later`, `after 0.18`. Where more is said, it comes after a `:`, `;` or `,`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator

from aoserial.record.era import Era
from aoserial.schema import REGISTRY, Nested, Schema, Symbol, Value
from aoserial.torchao.forms import Form
from aoserial.torchao.types import WRITTEN

PROGRAM = "torchao"

_RELEASE = r"\d+\.\d+"
_RANGE = re.compile(
    rf"(?:torchao )?(?:(?P<up>up to )?(?P<one>{_RELEASE})(?: (?:to|and) (?P<other>{_RELEASE}))?"
    rf"(?P<later> and later)?|after (?P<after>{_RELEASE}))(?=$|[:;,])"
)
_ANY = re.compile(_RELEASE)


def era_said(words: str) -> Era | None:
    """What the beginning of a `doc` says of releases; None where it says nothing."""
    found = _RANGE.match(words)
    if found is None:
        return None
    if after := found["after"]:
        return Era(program=PROGRAM, first=_beside(after, 1))
    if found["up"]:
        return Era(program=PROGRAM, last=found["one"])
    last = "" if found["later"] else found["other"] or found["one"]
    return Era(program=PROGRAM, first=found["one"], last=last)


def era_of_form(form: Form, schema: Schema | None) -> Era:
    """The releases that wrote a form: all from the first that it names to the last.

    Args:
        schema: of its records, whose `doc` tells where the form says `all`.
    """
    named = sorted(_ANY.findall(form.releases), key=_order)
    if not named:
        said = (schema and era_said(schema.doc)) or Era(program=PROGRAM)
        return _because(said, form.evidence)
    last = "" if "later" in form.releases else named[-1]
    return Era(program=PROGRAM, first=named[0], last=last, evidence=(form.evidence,))


def eras_of_fields(schema: Schema, held: Collection[str], kinds: str) -> Iterator[Era]:
    """What optional fields say that are there, or not there.

    Args:
        held: names of the fields that are there.
        kinds: of fields whose absence tells something, as a writer that knew them would have
            written None: `attribute`, or `attribute tensor`.
    """
    for field in schema.fields:
        said = None if field.required else era_said(field.doc)
        if said is None:
            continue
        if field.name in held:
            yield _because(said, f"has {field.name}")
        elif field.kind in kinds.split():
            # a range without what lies at one end of it; from the middle nothing can be taken
            if said.first and not said.last:
                earlier = Era(program=PROGRAM, last=_beside(said.first, -1))
                yield _because(earlier, f"lacks {field.name}")
            elif said.last and not said.first:
                later = Era(program=PROGRAM, first=_beside(said.last, 1))
                yield _because(later, f"lacks {field.name}")


def eras_of_values(values: Iterable[Value]) -> Iterator[Era]:
    """What the helper objects and members of enums among values say, to any depth."""
    for value in values:
        match value:
            case tuple():
                yield from eras_of_values(value)
            case Symbol():
                yield from _of_symbol(value)
            case Nested():
                yield from _of_object(value)
                yield from eras_of_values(value.fields.values())


def _of_symbol(symbol: Symbol) -> Iterator[Era]:
    """The releases that had the member."""
    enum = REGISTRY.enums.get(symbol.enum)
    if enum and (said := era_said(enum.symbols.get(symbol.name, ""))):
        yield _because(said, f"{symbol.enum.rpartition('.')[2]} is {symbol.name}")


def _of_object(held: Nested) -> Iterator[Era]:
    """The releases that had the object, and its fields."""
    schema = REGISTRY.schema(held.type, held.version)
    if schema is None:
        return
    if said := era_said(schema.doc):
        yield _because(said, f"holds a {held.type.removeprefix('torchao.')}")
    yield from eras_of_fields(schema, held.fields.keys(), "attribute")


def era_in_layout(schema: Schema) -> Era | None:
    """The releases that laid tensors of a type and version out in safetensors files, if any did."""
    written = WRITTEN.get(schema.type.removeprefix(f"{PROGRAM}."))
    if written is None or written.schema != schema:
        return None
    why = f"the layout has {schema.type.removeprefix(f'{PROGRAM}.')} since {written.since}"
    return Era(program=PROGRAM, first=written.since, evidence=(why,))


def _because(era: Era, words: str) -> Era:
    return Era(program=era.program, first=era.first, last=era.last, evidence=(words,))


def _beside(release: str, step: int) -> str:
    """The release before or after one; torchao counts minor releases up, one by one."""
    major, minor = _order(release)
    return f"{major}.{minor + step}"


def _order(release: str) -> tuple[int, int]:
    major, minor = map(int, release.split("."))
    return major, minor
