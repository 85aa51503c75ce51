"""Tensors to records and back, and attribute values between Python and a file."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from aoserial.errors import (
    FieldError,
    MissingFieldError,
    UnknownFieldError,
    UnknownTypeError,
    UnsupportedTensorError,
    VersionError,
)
from aoserial.record import Record
from aoserial.schema import FrozenMap, Nested, Symbol
from aoserial.storage.part import SlotPart, TensorPart
from aoserial.tensors import (
    Activation,
    ActivationKind,
    Float8Tensor,
    Granularity,
    GranularityKind,
    Int8Tensor,
    KernelHint,
    KernelPreference,
    VersionedTensor,
    builder,
    dump,
    field,
    from_record,
    load,
    register,
    to_record,
)
from aoserial.tensors.hints import Hint


@register("convert.Shade", fallback="dark")
class Shade(enum.Enum):
    dark = 0
    light = 1


@register("convert.Paint", version=2)
@dataclass(frozen=True)
class Paint:
    shade: Shade
    dtype: torch.dtype = torch.int8
    coats: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if len(self.coats) > 3:
            raise ValueError("too many coats")


@register("convert.Weight", version=2)
class Weight(VersionedTensor):
    ignorable = ("x_",)
    qdata: torch.Tensor = field(renamed_from="codes")
    group: int
    zero_point: torch.Tensor | None = None
    paint: Paint | None = None
    style: str = field(default="new", absent="old")
    parent_id: int = field(removed_in=2)


def record(**changes: Any) -> Record:
    fields = {
        "type": "convert.Weight",
        "version": 2,
        "shape": (2, 3),
        "dtype": "bfloat16",
        "attributes": {"group": 3},
        "parts": {"qdata": TensorPart(torch.arange(6, dtype=torch.int8).reshape(2, 3))},
    }
    return Record(**(fields | changes))


# -- records ------------------------------------------------------------------------------------


def test_what_is_at_its_absence_default_is_not_written() -> None:
    tensor = from_record(record())
    assert tensor.style == "old"  # not what a new object gets
    assert to_record(tensor).attributes == {"group": 3}
    assert set(to_record(tensor).parts) == {"qdata"}
    new = Weight(torch.zeros(2, 3), 3)
    assert to_record(new).attributes == {"group": 3, "style": "new"}


def test_a_record_has_the_tensors_own_parts_and_the_wrappers_shape() -> None:
    qdata = torch.zeros(4, dtype=torch.int8)
    found = to_record(Weight(qdata, 1, shape=(2, 2), dtype=torch.float16))
    assert found.parts["qdata"].tensor is qdata
    assert (found.shape, found.dtype) == ((2, 2), "float16")


def test_older_names_are_read_under_the_new_one() -> None:
    part = TensorPart(torch.ones(2, 3))
    tensor = from_record(record(parts={"codes": part}))
    assert torch.equal(tensor.qdata, part.tensor)
    assert set(to_record(tensor).parts) == {"qdata"}


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"type": "convert.Nothing"}, UnknownTypeError, "no tensor class is registered as"),
        ({"type": "convert.Paint"}, UnknownTypeError, "no tensor class"),
        ({"version": 1}, VersionError, "record is convert.Weight@1, its class convert.Weight@2"),
        ({"version": 3}, VersionError, "convert.Weight@3"),
        ({"attributes": {}}, MissingFieldError, "required attribute 'group'"),
        ({"parts": {}}, MissingFieldError, "required tensor 'qdata'"),
        ({"attributes": {"group": 1, "odd": 2}}, UnknownFieldError, "'odd'"),
        ({"attributes": {"group": "three"}}, FieldError, "expected int"),
        ({"attributes": {"group": 1, "parent_id": 2}}, UnknownFieldError, "was removed"),
        ({"dtype": "floaty"}, FieldError, "'floaty' is no dtype"),
        ({"dtype": "float6_e2m3fn"}, FieldError, "is no dtype"),
    ],
)
def test_a_record_outside_the_schema_is_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        from_record(record(**change))


def test_ignored_fields_go_where_their_tensor_goes() -> None:
    extra = TensorPart(torch.tensor([1.0, 2.0]))
    given = record(
        attributes={"group": 3, "x_note": ("a", 1), "x_to": "never hides a method"},
        parts={"qdata": TensorPart(torch.zeros(2, 3)), "x_data": extra},
    )
    tensor = from_record(given)
    copied = torch.nn.Parameter(tensor.clone().to(torch.float16), requires_grad=False)
    names, metadata = copied.__tensor_flatten__()
    inner = {name: getattr(copied, name) for name in names}
    for held in (
        tensor,
        copied,
        Weight.__tensor_unflatten__(inner, metadata, copied.shape, copied.stride()),
    ):
        found = to_record(held)
        assert dict(found.attributes) == dict(given.attributes)
        assert found.parts["x_data"].read().tolist() == [1.0, 2.0]
    assert not tensor._same_metadata(from_record(record()))
    assert tensor.to("meta")._kept == tensor._kept


def test_a_part_that_is_itself_a_subclass_is_not_saved_silently() -> None:
    inner = Int8Tensor.from_float(torch.ones(2, 2))
    tensor = from_record(record())
    tensor.qdata = inner
    with pytest.raises(UnsupportedTensorError, match="'qdata' is a Int8Tensor"):
        to_record(tensor)


# -- builders -----------------------------------------------------------------------------------


def test_a_builder_takes_parts_in_the_order_of_the_template() -> None:
    template = record(
        parts={
            "zero_point": SlotPart("zero_point", "int8", (1,)),
            "qdata": SlotPart("qdata", "int8", (2, 3)),
        }
    )
    build = builder(template)
    zero_point, qdata = torch.zeros(1, dtype=torch.int8), torch.ones(2, 3, dtype=torch.int8)
    tensor = build([zero_point, qdata])
    assert type(tensor) is Weight
    assert tensor.zero_point is zero_point
    assert tensor.qdata is qdata
    assert (tensor.shape, tensor.dtype, tensor.group) == ((2, 3), torch.bfloat16, 3)


def test_what_a_builder_makes_is_what_the_constructor_makes() -> None:
    weight = Float8Tensor.from_float(torch.randn(4, 6))
    template = to_record(weight)
    built = builder(template)([part.read() for part in template.parts.values()])
    assert built._same_metadata(weight)
    assert vars(built).keys() == vars(weight).keys()


def test_parts_on_several_devices_are_refused() -> None:
    weight = Float8Tensor.from_float(torch.randn(4, 6))
    build = builder(to_record(weight))
    with pytest.raises(FieldError, match="'scale' on meta, others on cpu"):
        build([weight.qdata, weight.scale.to("meta")])
    assert build([weight.qdata.to("meta"), weight.scale.to("meta")]).device.type == "meta"


# -- values -------------------------------------------------------------------------------------

PAINT = Nested("convert.Paint", 2, FrozenMap(shade=Symbol("convert.Shade", "light"), coats=(1, 2)))


@pytest.mark.parametrize(
    ("live", "plain", "hint"),
    [
        (None, None, Hint(text="int?")),
        (3, 3, Hint(text="int")),
        (torch.bfloat16, "bfloat16", Hint(text="dtype")),
        (torch.uint4, "uint4", Hint(text="dtype?")),
        ((1, (2, 3)), (1, (2, 3)), Hint(text="list[list[int]]")),
        ([1, [2]], (1, (2,)), Hint(text="list[list[int]]", sequence=list)),
        ([torch.int8], ("int8",), Hint(text="list[dtype]", sequence=list)),
        (Shade.light, Symbol("convert.Shade", "light"), Hint(text="enum:convert.Shade")),
        (Paint(Shade.light, coats=(1, 2)), PAINT, Hint(text="object:convert.Paint")),
        ((Paint(Shade.light, coats=(1, 2)),), (PAINT,), Hint()),
        ("int8", "int8", Hint(text="str")),
    ],
    ids=str,
)
def test_values_go_to_a_file_and_back(live: Any, plain: Any, hint: Hint) -> None:
    assert dump(live) == plain
    assert load(plain, hint) == live
    assert type(load(plain, hint)) is type(live)


@pytest.mark.parametrize(
    "value",
    [
        Symbol("nowhere.Enum", "x"),
        Symbol("convert.Shade", "newer"),
        Nested("nowhere.Object", 1, FrozenMap()),
        Nested("convert.Paint", 1, FrozenMap()),
        Nested("convert.Paint", 2, FrozenMap(unheard_of=1)),
    ],
    ids=str,
)
def test_what_no_class_fits_stays_plain(value: Any) -> None:
    assert load(value, Hint()) is value
    assert dump(value) is value


def test_an_object_its_class_does_not_accept_is_a_fault_of_the_field() -> None:
    odd = PAINT.replace(coats=(1, 2, 3, 4))
    with pytest.raises(FieldError, match="Paint does not accept .*: too many coats"):
        load(odd, Hint())


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({1: 2}, "cannot hold a dict"),
        (torch.zeros(1), "cannot hold a Tensor"),
        (enum.Enum("Loose", ["a"]).a, "Loose.a is of an enum that is not registered"),
    ],
)
def test_what_is_not_plain_is_named(value: Any, message: str) -> None:
    with pytest.raises(FieldError, match=message):
        dump(value)


def test_built_in_objects_hash_compare_and_survive() -> None:
    activation = Activation(
        kind=ActivationKind.dynamic,
        dtype=torch.float8_e4m3fn,
        granularity=Granularity(kind=GranularityKind.block, block_size=(1, 128)),
        upper_bound=2.0,
        kernel=KernelHint(preference=KernelPreference.mslk),
    )
    plain = dump(activation)
    assert load(plain, Hint()) == activation
    assert hash(load(plain, Hint())) == hash(activation)
    w = Float8Tensor.from_float(torch.randn(2, 4))
    weight = Float8Tensor(w.qdata, w.scale, w.block_size, activation=activation)
    assert from_record(to_record(weight)).activation == activation


def test_an_object_gains_from_the_fallback_of_its_enum() -> None:
    hint = Nested(
        "aoserial.KernelHint",
        1,
        FrozenMap(preference=Symbol("aoserial.KernelPreference", "from_the_future")),
    )
    w = Float8Tensor.from_float(torch.randn(2, 4))
    found = from_record(to_record(w).set(kernel=hint))
    assert found.kernel == KernelHint(preference=KernelPreference.auto)
