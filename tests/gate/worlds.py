"""Small types and folders of their documents, for tests of the gate."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from aoserial.gate import Code, Report, check, freeze
from aoserial.migrations import Steps, migration
from aoserial.schema import (
    EnumSchema,
    Field,
    Registry,
    Schema,
    attribute,
    optional_attribute,
    optional_tensor,
    tensor,
)

MODE = EnumSchema(type="acme.Mode", symbols={"none": "", "int": ""})
KIND = EnumSchema(type="acme.Kind", symbols={"a": "", "b": ""}, fallback="a")
OPTIONS = Schema(
    type="acme.Options",
    version=1,
    kind="object",
    fields=(attribute("bits", "int"), optional_attribute("note", "str", "")),
)
T = Schema(
    type="acme.T",
    version=1,
    dims=("N", "K"),
    ignorable=("hint_",),
    holds=("inner.",),
    fields=(
        tensor("qdata", "uint8", shape=("N", "K/2")),
        tensor("scale", "float32", "bfloat16"),
        attribute("group_size", "int"),
        optional_tensor("zero_point", "float32", shape=("N",)),
        optional_attribute("gain", "float", 1.0),
        optional_attribute("mode", "enum:acme.Mode?", None),
        optional_attribute("options", "object:acme.Options?", None),
        Field(name="gone", kind="attribute", removed_in=1),
        Field(name="order", kind="attribute", type="str", absent="row", renamed_from=("layout",)),
    ),
)


def code(
    folder: Path | None,
    *schemas: Schema,
    enums: tuple[EnumSchema, ...] = (MODE, KIND),
    steps: Steps | None = None,
) -> Code:
    """These schemas as if they were declared, each type's last one as its head."""
    registry = Registry()
    for enum in enums:
        registry.add_enum(enum)
    for schema in schemas:
        registry.types.pop(schema.type, None)
        registry.add(schema, owner="acme.tensors.T")
    return Code(
        registry=registry,
        steps=steps or Steps(),
        types=tuple(registry.types),
        enums=tuple(registry.enums),
        folder=folder,
    )


def frozen(folder: Path, *schemas: Schema, **options: tuple[EnumSchema, ...]) -> Path:
    """A folder with the documents of these schemas, in the order in which they were released."""
    for schema in schemas or (OPTIONS, T):
        old = code(folder, schema, **options)
        freeze(old, (*old.types, *old.enums))
    return folder


def rules(report: Report) -> list[str]:
    return [one.rule for one in report.findings]


def checked(now: Code, **options: object) -> Report:
    return check([now], **options)  # type: ignore[arg-type]


def steps(*functions: Callable[..., object], type_id: str = "acme.T") -> Steps:
    """A chain of steps, the first of which leaves version 1."""
    table = Steps()
    for version, function in enumerate(functions, start=1):
        migration(type_id, version, version + 1, steps=table)(function)
    return table
