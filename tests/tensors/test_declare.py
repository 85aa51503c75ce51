"""Classes with annotated fields: what schema they make, and what instances they make."""

from __future__ import annotations

import enum
import inspect
from dataclasses import dataclass, field as dataclass_field
from typing import Any, ClassVar, Literal, Optional, Union

import pytest
import torch

from aoserial.errors import Faults, FieldError, SchemaError, UnregisteredClassError
from aoserial.schema import BLOCKS, MISSING, Symbol
from aoserial.schema.keywords import schema_keywords
from aoserial.tensors import CLASSES, VersionedTensor, field, register, to_record
from aoserial.tensors.hints import Hint, hint


@register("declare.Color", fallback="red")
class Color(enum.Enum):
    """What it is painted."""

    red = 1
    green = 2
    rouge = 1  # noqa: PIE796  (an alias, which a file may hold as well)


@register("declare.Options", version=4)
@dataclass(frozen=True)
class Options:
    """How it is made."""

    dtype: torch.dtype
    color: Color = Color.green
    sizes: tuple[int, ...] = (1, 2)
    names: list[str] = dataclass_field(default_factory=list)

    def __hash__(self) -> int:
        return hash(self.dtype)


@register("declare.Full", version=7)
class Full(VersionedTensor):
    """Every kind of field.

    The second line is not the first.
    """

    dims = ("N", "K")
    ignorable = ("x_",)
    removed: ClassVar[dict[str, int]] = {"gone": 3}
    helper: ClassVar[int] = 5
    _private: int = 6

    gain: float = 1
    options: Options | None = None
    scale: torch.Tensor = field(shape=BLOCKS, dtypes=[torch.float32, "bfloat16"], doc="per block")
    zero_point: torch.Tensor | None = None
    block_size: tuple[int, ...]
    qdata: torch.Tensor = field(shape=("N", 4), renamed_from="codes")
    color: Color = field(default=Color.green, absent=Color.red, added_in=2)
    old: int = field(removed_in=5)
    sizes: list[int] = [1]


def make(**changes: Any) -> Full:
    fields = {"scale": torch.ones(2, 1), "qdata": torch.zeros(2, 4), "block_size": (1, 4)}
    return Full(**(fields | changes))


def test_the_schema_says_what_the_class_says() -> None:
    document = schema_keywords(CLASSES.tensor(Full).schema)
    assert document == {
        "type": "declare.Full",
        "version": 7,
        "doc": "Every kind of field.",
        "dims": ["N", "K"],
        "ignorable": ["x_"],
        "fields": {
            "gain": {"kind": "attribute", "type": "float", "absent": 1.0},
            "options": {"kind": "attribute", "type": "object:declare.Options?", "absent": None},
            "scale": {
                "kind": "tensor",
                "dtypes": ["float32", "bfloat16"],
                "shape": ["blocks"],
                "doc": "per block",
            },
            "zero_point": {"kind": "tensor", "absent": None},
            "block_size": {"kind": "attribute", "type": "list[int]"},
            "qdata": {"kind": "tensor", "shape": ["N", "4"], "renamed_from": ["codes"]},
            "color": {
                "kind": "attribute",
                "type": "enum:declare.Color",
                "absent": {"$enum": "declare.Color", "name": "red"},
                "default": {"$enum": "declare.Color", "name": "green"},
                "added_in": 2,
            },
            "old": {"kind": "attribute", "type": "int", "removed_in": 5},
            "sizes": {"kind": "attribute", "type": "list[int]", "absent": [1]},
            "gone": {"kind": "attribute", "type": "any", "removed_in": 3},
        },
    }


def test_the_four_lists_are_in_torchaos_order() -> None:
    assert Full.tensor_data_names == ["scale", "qdata"]
    assert Full.tensor_attribute_names == ["block_size"]
    assert Full.optional_tensor_data_names == ["zero_point"]
    assert Full.optional_tensor_attribute_names == ["gain", "options", "color", "sizes"]


def test_the_constructor_takes_the_fields_in_that_order() -> None:
    assert list(inspect.signature(Full).parameters) == [
        *("scale", "qdata", "block_size"),
        *("zero_point", "gain", "options", "color", "sizes"),
        *("shape", "dtype"),
    ]
    scale, qdata, zero_point = torch.ones(2, 1), torch.zeros(2, 4), torch.ones(3)
    weight = Full(scale, qdata, (1, 4), zero_point, 2.0)
    assert weight.scale is scale
    assert weight.qdata is qdata
    assert weight.zero_point is zero_point
    assert (weight.block_size, weight.gain) == ((1, 4), 2.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "missing a required argument: 'scale'"),
        ({"scale": 1, "qdata": 2, "block_size": 3, "colour": 4}, "unexpected keyword.*colour"),
    ],
)
def test_wrong_arguments_are_type_errors(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Full(**arguments)


def test_new_objects_get_the_default_and_a_class_has_it_too() -> None:
    assert make().color is Color.green
    assert Full.color is Color.green
    assert make().sizes == [1]
    assert make().sizes is not make().sizes
    assert make().options is None


def test_values_become_what_the_annotation_says() -> None:
    weight = make(block_size=[1, 4], gain=3, sizes=(4, 5))
    assert weight.block_size == (1, 4)
    assert isinstance(weight.gain, float)
    assert weight.sizes == [4, 5]


@pytest.mark.parametrize(
    ("change", "field_name", "message"),
    [
        ({"scale": torch.ones(3, 1)}, "scale", "expected \\[2, 1\\]"),
        ({"scale": torch.ones(2, 1, dtype=torch.float64)}, "scale", "dtype is float64"),
        ({"qdata": torch.zeros(2, 5)}, "qdata", "expected \\[N, 4\\]"),
        ({"gain": "loud"}, "gain", "expected float"),
        ({"qdata": [1, 2]}, "qdata", "expected a tensor"),
        ({"options": object()}, "options", "cannot hold a object"),
    ],
)
def test_the_constructor_checks_the_schema(
    change: dict[str, Any], field_name: str, message: str
) -> None:
    with pytest.raises(FieldError, match=message) as caught:
        make(shape=(2, 4), **change)
    assert caught.value.location.field == field_name


def test_all_faults_of_a_constructor_come_together() -> None:
    with pytest.raises(Faults) as caught:
        make(shape=(2, 4), gain="loud", scale=torch.ones(5, 5))
    assert len(caught.value.exceptions) == 2


def test_parts_must_lie_on_one_device() -> None:
    with pytest.raises(FieldError, match="'qdata' on meta, others on cpu"):
        make(qdata=torch.zeros(2, 4, device="meta"))


def test_logical_shape_and_dtype_are_given_or_taken_from_torch() -> None:
    assert make(shape=(2, 4)).shape == (2, 4)
    assert make(qdata=torch.zeros(2, 4), scale=torch.ones(2, 1), shape=(2, 3)).shape == (2, 3)
    assert make(shape=(2, 4)).dtype == torch.get_default_dtype()
    assert make(shape=(2, 4), dtype=torch.float16).dtype == torch.float16


def test_fields_of_a_base_class_come_first() -> None:
    @register("declare.Derived", version=7)
    class Derived(Full):
        extra: int = 3

    fields = [field.name for field in CLASSES.tensor(Derived).schema.fields]
    assert fields.index("extra") == fields.index("sizes") + 1
    assert CLASSES.tensor(Derived).schema.by_name["scale"].shape == BLOCKS
    assert Derived.optional_tensor_attribute_names[-1] == "extra"


def test_a_subclass_is_a_type_of_its_own() -> None:
    class Unregistered(Full):
        pass

    with pytest.raises(UnregisteredClassError, match="decorate it with @aoserial.register"):
        Unregistered(torch.ones(2, 1), torch.zeros(2, 4), (1, 4))


def test_a_field_may_have_no_new_object_default_behind_one_that_has() -> None:
    @register("declare.Keyword")
    class Keyword(VersionedTensor):
        qdata: torch.Tensor
        a: int = 1
        b: int = field(absent=2)

    assert Keyword(torch.zeros(2)).b == 2


# -- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["data", "grad", "T", "to", "dim", "implements", "dims", "size"])
def test_a_field_may_not_hide_what_every_tensor_has(name: str) -> None:
    namespace = {"__annotations__": {"qdata": torch.Tensor, name: int}, "__module__": __name__}
    with pytest.raises(SchemaError, match="every tensor has an attribute of that name"):
        register(f"declare.Hides_{name}")(type(f"Hides_{name}", (VersionedTensor,), namespace))


@pytest.mark.parametrize(
    ("annotation", "default", "message"),
    [
        (torch.device, MISSING, "a file cannot hold"),
        (dict, MISSING, "a file cannot hold"),
        (list[torch.Tensor], MISSING, "list of tensors"),
        (torch.Tensor | int, MISSING, "a tensor or an attribute"),
        (torch.Tensor, None, "annotate it torch.Tensor | None"),
        ("Nowhere", MISSING, "cannot resolve the annotation 'Nowhere'"),
        (int, "three", "expected int"),
        (int, field(dtypes=("int8",)), "dtypes and shape are for tensors"),
        (torch.Tensor | None, 3, "can only mean None"),
        (torch.Tensor, field(dtypes=("int3",)), "not a dtype"),
        (int, field(added_in=9), "speaks of a later version"),
    ],
)
def test_a_field_that_no_file_can_hold_is_refused(
    annotation: Any, default: Any, message: str
) -> None:
    namespace: dict[str, Any] = {
        "__annotations__": {"qdata": torch.Tensor, "odd": annotation},
        "__module__": __name__,
    }
    if default is not MISSING:
        namespace["odd"] = default
    with pytest.raises((SchemaError, FieldError), match=message):
        register("declare.Odd")(type("Odd", (VersionedTensor,), namespace))
    assert CLASSES.find("declare.Odd") is None


def test_a_class_without_a_tensor_is_refused() -> None:
    class Empty(VersionedTensor):
        size_of: int

    with pytest.raises(SchemaError, match="no tensor that every instance has"):
        register("declare.Empty")(Empty)


# -- annotations --------------------------------------------------------------------------------

UNREGISTERED = enum.Enum("UNREGISTERED", ["a"])


def text(cls: type) -> str | None:
    return {Color: "enum:declare.Color", Options: "object:declare.Options"}.get(cls)


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, Hint(text="int")),
        (bool, Hint(text="bool")),
        (torch.dtype, Hint(text="dtype")),
        (Any, Hint()),
        (Optional[int], Hint(text="int?", optional=True)),  # noqa: UP045
        (int | None, Hint(text="int?", optional=True)),
        (Union[int, str], Hint()),  # noqa: UP007
        (tuple[int, ...], Hint(text="list[int]")),
        (tuple[int, int], Hint(text="list[int]")),
        (tuple[int, str], Hint(text="list[any]")),
        (torch.Size, Hint(text="list[int]")),
        (list, Hint(text="list[any]", sequence=list)),
        (list[list[float]], Hint(text="list[list[float]]", sequence=list)),
        (list[int] | None, Hint(text="list[int]?", sequence=list, optional=True)),
        (Literal["a", "b"], Hint(text="str")),
        (Literal["a", 2], Hint()),
        (Color | None, Hint(text="enum:declare.Color?", optional=True)),
        (tuple[Options, ...], Hint(text="list[object:declare.Options]")),
        (torch.Tensor, Hint(tensor=True)),
        (torch.Tensor | None, Hint(tensor=True, optional=True)),
        (torch.nn.Parameter, Hint(tensor=True)),
    ],
    ids=str,
)
def test_annotations_are_types_of_a_schema(annotation: Any, expected: Hint) -> None:
    assert hint(annotation, text) == expected


def test_an_unregistered_enum_is_named() -> None:
    with pytest.raises(SchemaError, match="UNREGISTERED is not registered"):
        hint(UNREGISTERED, text)


# -- nested objects and enums -------------------------------------------------------------------


def test_an_enum_lists_its_names_aliases_too() -> None:
    schema = CLASSES.find("declare.Color").schema
    assert list(schema.symbols) == ["red", "green", "rouge"]
    assert schema.fallback == "red"
    assert schema.doc == "What it is painted."


def test_an_object_has_a_schema_of_its_own_version() -> None:
    schema = CLASSES.find("declare.Options").schema
    assert (schema.version, schema.kind, schema.doc) == (4, "object", "How it is made.")
    assert schema.by_name["color"].absent == Symbol("declare.Color", "green")
    assert schema.by_name["names"].absent == ()


def test_an_object_is_stored_without_what_is_at_its_default() -> None:
    record = to_record(make(options=Options(torch.int8, Color.red)))
    assert dict(record.attributes["options"].fields) == {
        "dtype": "int8",
        "color": Symbol("declare.Color", "red"),
    }
