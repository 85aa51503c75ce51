"""For any edit of any schema, the gate's verdict agrees with what a reader then does to a file.

Clean: every file that the old schema allows loads, and means the same. A finding: its witness, put
into the header of a file and read back, fails, or is silently taken for something else.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

from gate.worlds import KIND, MODE, OPTIONS, code
from hypothesis import HealthCheck, given, settings, strategies as st

from aoserial.errors import AoserialError
from aoserial.gate.candidates import candidates
from aoserial.gate.compare import compare
from aoserial.gate.example import example
from aoserial.gate.rules import RULES
from aoserial.gate.witness import World, own_steps, witness
from aoserial.migrations import Steps
from aoserial.record import Record
from aoserial.record.envelope import Contents, Stored, decode_envelope, lay_out
from aoserial.schema import BLOCKS, MISSING, Field, FrozenMap, Schema, Symbol, Value, resolve
from aoserial.schema.values import Json, decode
from aoserial.storage import SlotPart

EXAMPLES = int(os.environ.get("AOSERIAL_EXAMPLES", "150"))
NAMES = ("a", "b", "c", "d", "e", "f")
DTYPES = st.lists(st.sampled_from(("uint8", "float32", "bfloat16")), max_size=2, unique=True)
SHAPES = st.sampled_from((None, ("N",), ("N", "K"), ("N", "K/2"), ("16",), BLOCKS, ("numel/2",)))
MODES = ("none", "int")
TYPES: dict[str, tuple[Value, ...]] = {
    "int": (0, 1),
    "bool": (False, True),
    "float": (1.0, 2.0),
    "str": ("x", ""),
    "list[int]": ((), (1,)),
    "int?": (None, 1),
    "enum:acme.Mode": tuple(Symbol("acme.Mode", name) for name in MODES),
    "enum:acme.Kind?": (None, Symbol("acme.Kind", "a")),
    "object:acme.Options?": (None,),
    "any": (None, 0, "x"),
}


@st.composite
def a_field(draw: Any, name: str) -> Field:
    """Any field of that name."""
    optional = draw(st.booleans())
    if draw(st.booleans()):
        asked = st.sampled_from((None, ("mode", ("int",))))
        return Field(
            name=name,
            kind="tensor",
            dtypes=tuple(draw(DTYPES)),
            shape=draw(SHAPES),
            when=draw(asked) if optional else None,
            **({"absent": None} if optional else {}),
        )
    kind = draw(st.sampled_from(tuple(TYPES)))
    absent = {"absent": draw(st.sampled_from(TYPES[kind]))} if optional else {}
    return Field(name=name, kind="attribute", type=kind, **absent)


@st.composite
def a_schema(draw: Any) -> Schema:
    """Any schema of a few fields; `block_size` and `mode` are there for the rules that ask."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=4, unique=True))
    fields = [draw(a_field(name)) for name in names]
    return Schema(
        type="acme.T",
        version=1,
        dims=draw(st.sampled_from((None, ("N", "K"), ("...", "K")))),
        logical_dtypes=draw(st.sampled_from((("float32",), ("float32", "bfloat16")))),
        ignorable=draw(st.sampled_from(((), ("hint_",)))),
        holds=draw(st.sampled_from(((), ("inner.",)))),
        fields=(
            Field(name="qdata", kind="tensor", dtypes=("uint8",)),
            Field(name="block_size", kind="attribute", type="list[int]"),
            Field(
                name="mode",
                kind="attribute",
                type="enum:acme.Mode",
                absent=Symbol("acme.Mode", draw(st.sampled_from(MODES))),
            ),
            *fields,
        ),
    )


@st.composite
def a_tweak(draw: Any, one: Field) -> Field:
    """The field with one property changed, which is how people break a format unawares."""
    if one.kind == "tensor":
        other = draw(a_field(one.name).filter(lambda field: field.kind == "tensor"))
        name = draw(st.sampled_from(("dtypes", "shape", "absent", "when")))
        return replace(one, **{name: getattr(other, name)})
    values = TYPES.get(one.type, ())
    return replace(one, absent=draw(st.sampled_from((*values, MISSING))))


@st.composite
def an_edit(draw: Any, schema: Schema) -> Schema:
    """The schema after one edit, of a field or of the whole."""
    verbs = ("drop", "remove", "rename", "replace", "add", "whole", "tweak", "tweak", "tweak")
    verb = draw(st.sampled_from(verbs))
    fields = list(schema.fields)
    at = draw(st.integers(1, len(fields) - 1))  # every tensor has some part: qdata stays
    one = fields[at]
    fresh = draw(st.sampled_from([*(n for n in NAMES if n not in schema.by_name), "hint_y"]))
    if verb == "drop":
        del fields[at]
    elif verb == "remove":
        fields[at] = Field(name=one.name, kind=one.kind, removed_in=1)
    elif verb == "rename" and not one.removed:
        older = draw(st.sampled_from(((), (one.name, *one.renamed_from))))
        fields[at] = replace(one, name=fresh, renamed_from=older)
    elif verb == "replace":
        fields[at] = draw(a_field(one.name))
    elif verb == "tweak" and not one.removed:
        fields[at] = draw(a_tweak(one))
    elif verb == "add":
        fields.append(draw(a_field(fresh)))
    else:
        other = draw(a_schema())
        names = st.sampled_from(("dims", "logical_dtypes", "ignorable", "holds", "doc"))
        name = draw(names)
        return replace(schema, **{name: getattr(other, name)})
    return replace(schema, fields=tuple(fields))


@st.composite
def a_change(draw: Any) -> tuple[Schema, Schema]:
    old = new = draw(a_schema())
    for _ in range(draw(st.integers(1, 3))):
        try:
            new = draw(an_edit(new))
        except AoserialError:  # a schema that nobody could declare: a name twice
            continue
    return old, new


def world(schema: Schema) -> World:
    registry = code(None, OPTIONS, schema, enums=(MODE, KIND)).registry
    return World(registry=registry, steps=own_steps(registry, Steps()))


def read_back(record: Record, writer: World, reader: World) -> Record:
    """What `reader` makes of the record in a header that `writer` laid out."""
    contents = Contents(
        records={"m.w": Stored(record=record)}, plain={}, ties={}, trail=[], metadata={}, extra={}
    )
    sheet = lay_out(contents, writer.registry, sealed=False)
    entries = {key: (part.dtype, part.shape, 0, part.nbytes) for key, part in sheet.parts.items()}
    catalog = decode_envelope(sheet.metadata, entries, None)
    (group,) = catalog.groups
    return reader.read(group.template, group.fingerprint)


def from_json(data: Json) -> Record:
    return Record(
        type=data["type"],
        version=data["version"],
        shape=tuple(data["shape"]),
        dtype=data["dtype"],
        attributes=FrozenMap({name: decode(item) for name, item in data["attributes"].items()}),
        parts={
            name: SlotPart(name, part["dtype"], tuple(part["shape"]))
            for name, part in data["parts"].items()
        },
    )


def every_file(schema: Schema, writer: World) -> list[Record]:
    """The smallest record, one around each field, one with all of them, one of each mode."""
    registry = writer.registry
    found = [record for name in schema.by_name for record in candidates(schema, name, registry)]
    for prefix in (*schema.ignorable, *schema.holds):
        found += candidates(schema, prefix, registry)
    all_fields = {field.name for field in schema.live_fields}
    found += filter(
        None,
        (
            example(schema, registry, held=all_fields),
            *(example(schema, registry, logical_dtype=dtype) for dtype in schema.logical_dtypes),
            *(
                example(schema, registry, values={"mode": Symbol("acme.Mode", mode)})
                for mode in (MODES if "mode" in schema.by_name else ())
            ),
        ),
    )
    return found


def presently(written: Schema, read_by: Schema) -> dict[str, str]:
    """Each field of one schema under the name that it has in the other."""
    return {
        field.name: read_by.by_name[name].name
        for field in written.live_fields
        for name in (field.name, *field.renamed_from)
        if name in read_by.by_name
    }


def meaning(record: Record, schema: Schema, of: World) -> dict[str, Value]:
    found = resolve(
        schema,
        shape=record.shape,
        attributes=record.attributes,
        parts=record.parts,
        registry=of.registry,
    )
    return found.attributes


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(a_change())
def test_what_the_gate_lets_through_loads_and_means_the_same(change):
    old, new = change
    rules = {one.rule for one in compare(old, new)}
    before, after = world(old), world(new)
    if not any("read" in RULES[rule].breaks for rule in rules):
        for record in every_file(old, before):
            found = read_back(record, before, after).attributes
            for name, value in meaning(record, old, before).items():
                present = new.by_name[name].name if name in new.by_name else name
                assert repr(found[present]) == repr(value)
    if not any("write" in RULES[rule].breaks for rule in rules):
        groups = tuple(prefix for prefix in new.ignorable if prefix not in old.ignorable)
        for record in every_file(new, after):
            names = {*record.attributes, *record.parts}
            newer = any(name.startswith(groups) for name in names - set(new.by_name))
            older = names & {name for field in new.fields for name in field.renamed_from}
            if not newer and not older:  # this code writes neither
                read_back(record, after, before)


@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
@given(a_change())
def test_what_the_gate_refuses_fails_as_its_witness_says(change):
    old, new = change
    before, after = world(old), world(new)
    if not every_file(old, before) or not every_file(new, after):
        return  # a schema that no record satisfies
    for one in compare(old, new):
        if not RULES[one.rule].breaks:
            continue
        shown = witness(one.rule, one.field, old, new, before, after)
        assert shown is not None, one
        record = from_json(shown.record)
        old_to_new = shown.direction == "read"
        writer, reader, written = (before, after, old) if old_to_new else (after, before, new)
        try:
            found = read_back(record, writer, reader)
        except AoserialError as error:
            assert shown.outcome.startswith(type(error).__name__)  # noqa: PT017 - either will do
        else:
            assert shown.outcome.startswith("no error")
            meant = meaning(record, written, writer)
            names = presently(written, old if reader is before else new)
            assert any(
                repr(found.attributes.get(names.get(name, name))) != repr(value)
                for name, value in meant.items()
            ) or any(names.get(name, name) not in found.parts for name in record.parts)
