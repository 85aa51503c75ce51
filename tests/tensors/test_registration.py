"""Who may take a type id, and who may take it again."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

from aoserial.errors import SchemaError, UnregisteredClassError
from aoserial.schema import (
    REGISTRY,
    EnumSchema,
    Registry,
    Schema,
    attribute,
    optional_attribute,
    tensor,
)
from aoserial.tensors import (
    CLASSES,
    Classes,
    Float8Tensor,
    VersionedTensor,
    bind,
    register,
    register_class,
    to_record,
)


@pytest.fixture
def classes() -> Classes:
    return Classes(schemas=Registry())


def define(name: str = "Cell", fields: str = "qdata") -> type[VersionedTensor]:
    """A class as a notebook cell would define it."""
    annotations = dict.fromkeys(fields.split(), torch.Tensor)
    namespace = {"__annotations__": annotations, "__module__": "notebook", "__qualname__": name}
    return type(name, (VersionedTensor,), namespace)


def test_a_cell_that_runs_twice_replaces_its_class(classes: Classes) -> None:
    first, second = define(), define()
    register("acme.Cell", classes=classes)(first)
    register("acme.Cell", classes=classes)(second)
    assert classes.find("acme.Cell").cls is second
    assert classes.tensor(first)  # its tensors can still be saved: the fields are the same


def test_a_cell_that_was_edited_forgets_its_old_class(classes: Classes) -> None:
    first, second = define(), define(fields="qdata scale")
    register("acme.Cell", classes=classes)(first)
    register("acme.Cell", version=2, classes=classes)(second)
    assert classes.schemas["acme.Cell"].head.version == 2
    with pytest.raises(UnregisteredClassError):
        classes.tensor(first)


def test_another_class_under_a_taken_id_is_refused(classes: Classes) -> None:
    register("acme.Cell", classes=classes)(define())
    with pytest.raises(SchemaError, match=r"registered by notebook\.Cell, not by notebook\.Other"):
        register("acme.Cell", classes=classes)(define("Other"))


def test_one_class_has_one_id(classes: Classes) -> None:
    cls = register("acme.Cell", classes=classes)(define())
    with pytest.raises(SchemaError, match=r"already registered as acme\.Cell"):
        register("acme.Cell2", classes=classes)(cls)


def test_a_built_in_id_is_taken() -> None:
    with pytest.raises(SchemaError, match=r"already registered by aoserial"):
        register("aoserial.Float8Tensor")(define())
    assert CLASSES.find("aoserial.Float8Tensor").cls is Float8Tensor


@pytest.mark.parametrize("type_id", ["Cell", "acme.", "acme.Int 4", "a.b/c", ""])
def test_a_type_id_is_dotted_identifiers(classes: Classes, type_id: str) -> None:
    with pytest.raises(SchemaError, match="not a type id"):
        register(type_id, classes=classes)(define())
    assert not classes.by_id


def test_a_failed_registration_leaves_nothing_behind(classes: Classes) -> None:
    with pytest.raises(SchemaError):
        register("acme.Cell", version=0, classes=classes)(define())
    assert not classes.by_id
    assert not classes.by_class
    assert not classes.schemas.types


def test_frozen_documents_are_looked_for_where_the_author_says(
    classes: Classes, tmp_path: Path
) -> None:
    register("acme.Cell", version=2, schemas=str(tmp_path), classes=classes)(define())
    assert classes.schemas["acme.Cell"].frozen == tmp_path


def test_the_table_says_which_classes_are_tensors(classes: Classes) -> None:
    cell = register("acme.Cell", classes=classes)(define())
    color = register("acme.Color", classes=classes)(enum.Enum("Color", ["red"]))
    assert cell in classes
    assert color not in classes
    assert torch.Tensor not in classes
    assert "acme.Cell" not in classes


def test_enums_may_gain_members_when_their_module_runs_again(classes: Classes) -> None:
    for members in (["red"], ["red", "green"]):
        register("acme.Color", classes=classes)(enum.Enum("Color", members, module="notebook"))
    assert list(classes.schemas.enums["acme.Color"].symbols) == ["red", "green"]


def test_what_no_file_can_hold_is_refused(classes: Classes) -> None:
    class Plain:
        pass

    @dataclass
    class Unhashable:
        x: int = 1

    class Bare(torch.Tensor):
        pass

    for cls, message in (
        (Plain, "no VersionedTensor, dataclass or Enum"),
        (Unhashable, r"make it @dataclass\(frozen=True\)"),
        (Bare, "use aoserial.register_class"),
    ):
        with pytest.raises(SchemaError, match=message):
            register("acme.Odd", classes=classes)(cls)
    with pytest.raises(SchemaError, match="is no enum"):
        register("acme.Odd", fallback="x", classes=classes)(define())
    with pytest.raises(SchemaError, match="no tensor_data_names"):
        register_class(Bare, type="acme.Odd", classes=classes)


def test_a_dataclass_with_a_field_that_is_not_plain_is_refused(classes: Classes) -> None:
    @dataclass(frozen=True)
    class Holder:
        weight: torch.Tensor

    with pytest.raises(SchemaError, match="has no tensors"):
        register("acme.Holder", classes=classes)(Holder)


def test_a_tensor_of_an_unregistered_class_is_not_saved() -> None:
    with pytest.raises(UnregisteredClassError, match="torch.Tensor has no type id"):
        to_record(torch.zeros(2))


# -- binding ------------------------------------------------------------------------------------

CELL = Schema(
    type="acme.Cell",
    version=5,
    fields=(
        tensor("qdata", "int8"),
        attribute("size_of", "int"),
        optional_attribute("b", "str", ""),
    ),
)


def bindable(**changes: object) -> type:
    namespace = {
        "__annotations__": {"qdata": torch.Tensor, "size_of": int, "b": str},
        "__module__": "notebook",
        "b": "",
    }
    for name, annotation in changes.items():
        namespace["__annotations__"][name] = annotation
    return type("Cell", (VersionedTensor,), namespace)


def test_a_class_bound_to_a_schema_has_its_head(classes: Classes) -> None:
    cls = bind(CELL, classes)(bindable())
    assert classes.tensor(cls).schema is CELL


@pytest.mark.parametrize(
    "change", [{"size_of": float}, {"extra": int}, {"qdata": int}, {"b": str | None}]
)
def test_a_class_that_differs_from_its_schema_is_refused(
    classes: Classes, change: dict[str, object]
) -> None:
    [name] = change
    with pytest.raises(SchemaError, match=rf"acme\.Cell@5 declares otherwise: {name}|no tensor"):
        bind(CELL, classes)(bindable(**change))
    assert not classes.by_id


def test_an_enum_that_differs_from_its_schema_is_refused(classes: Classes) -> None:
    schema = EnumSchema(type="acme.Color", symbols={"red": "", "green": ""})
    with pytest.raises(SchemaError, match="other members"):
        bind(schema, classes)(enum.Enum("Color", ["red"]))


def test_every_built_in_schema_has_its_class() -> None:
    from aoserial.schema.builtin import TENSORS
    from aoserial.schema.builtin.activation import ENUMS, OBJECTS

    for schema in (*TENSORS, *OBJECTS, *ENUMS):
        entry = CLASSES.find(schema.type)
        assert entry is not None
        assert entry.schema is schema
        assert entry.cls.__name__ == schema.type.removeprefix("aoserial.")
    assert REGISTRY["aoserial.Float8Tensor"].head is CLASSES.tensor(Float8Tensor).schema
