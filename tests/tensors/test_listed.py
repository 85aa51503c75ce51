"""Classes written for torchao's TorchAOBaseTensor: with the base class changed, or untouched."""

from __future__ import annotations

import enum
from typing import Any, List, Optional  # noqa: UP035

import pytest
import torch

from aoserial.errors import FieldError, SchemaError, UnsupportedOperationError
from aoserial.schema import Symbol
from aoserial.schema.keywords import schema_keywords
from aoserial.tensors import (
    CLASSES,
    VersionedTensor,
    from_record,
    register,
    register_class,
    to_record,
)


@register("listed.Style")
class Style(str, enum.Enum):  # noqa: UP042
    AUTO = "auto"
    FAST = "fast"


class Listed(VersionedTensor):
    """Written against torchao's base class."""

    tensor_data_names = ["qdata", "scale"]
    tensor_attribute_names = ["block_size", "shape", "dtype"]
    optional_tensor_data_names = ["zero_point"]
    optional_tensor_attribute_names = ["style", "options", "reduce"]

    def __new__(
        cls,
        qdata: torch.Tensor,
        scale: torch.Tensor,
        block_size: List[int],  # noqa: UP006
        shape: torch.Size,
        dtype: torch.dtype,
        zero_point: Optional[torch.Tensor] = None,  # noqa: UP045
        style: Style = Style.AUTO,
        options: Optional[SomethingElsewhere] = None,  # noqa: F821, UP045
        reduce: Optional[bool] = False,  # noqa: UP045
    ):
        kwargs = {"dtype": dtype, "device": qdata.device, "requires_grad": False}
        return torch.Tensor._make_wrapper_subclass(cls, shape, **kwargs)

    def __init__(
        self,
        qdata: torch.Tensor,
        scale: torch.Tensor,
        block_size: List[int],  # noqa: UP006
        shape: torch.Size,
        dtype: torch.dtype,
        zero_point: Optional[torch.Tensor] = None,  # noqa: UP045
        style: Style = Style.AUTO,
        options: Optional[SomethingElsewhere] = None,  # noqa: F821, UP045
        reduce: Optional[bool] = False,  # noqa: UP045
    ):
        super().__init__()
        self.qdata = qdata
        self.scale = scale
        self.block_size = block_size
        self.zero_point = zero_point
        self.style = style
        self.options = options
        self.reduce = reduce


register("listed.Listed", version=2)(Listed)
implements = Listed.implements
implements_torch_function = Listed.implements_torch_function


@implements([torch.ops.aten.slice.Tensor])
def _slice(func: Any, types: Any, args: Any, kwargs: Any) -> str:
    return f"sliced by {func}"


@implements_torch_function(torch.relu)
def _relu(func: Any, types: Any, args: Any, kwargs: Any) -> str:
    return "relu"


def make(**changes: Any) -> Listed:
    fields = {
        "qdata": torch.ones(2, 2, dtype=torch.uint8),
        "scale": torch.ones(2, 1),
        "block_size": [1, 4],
        "shape": (2, 4),
        "dtype": torch.bfloat16,
    }
    return Listed(**(fields | changes))


def test_the_signature_says_what_absence_means_and_of_what_type() -> None:
    assert schema_keywords(CLASSES.tensor(Listed).schema) == {
        "type": "listed.Listed",
        "version": 2,
        "doc": "Written against torchao's base class.",
        "fields": {
            "qdata": {"kind": "tensor"},
            "scale": {"kind": "tensor"},
            "block_size": {"kind": "attribute", "type": "list[int]"},
            "zero_point": {"kind": "tensor", "absent": None},
            "style": {
                "kind": "attribute",
                "type": "enum:listed.Style",
                "absent": {"$enum": "listed.Style", "name": "AUTO"},
            },
            "options": {"kind": "attribute", "type": "any", "absent": None},
            "reduce": {"kind": "attribute", "type": "bool?", "absent": False},
        },
    }


def test_instances_are_made_by_the_class_itself() -> None:
    weight = make(style=Style.FAST)
    record = to_record(weight)
    assert record.attributes == {"block_size": (1, 4), "style": Symbol("listed.Style", "FAST")}
    assert (record.shape, record.dtype) == ((2, 4), "bfloat16")
    again = from_record(record)
    assert (again.block_size, again.style, again.reduce) == ([1, 4], Style.FAST, False)
    assert (again.shape, again.dtype) == ((2, 4), torch.bfloat16)


def test_lists_are_not_shared_between_tensors() -> None:
    weight = make()
    for other in (weight.detach(), from_record(to_record(weight))):
        other.block_size[0] = 99
    assert weight.block_size == [1, 4]


def test_the_helpers_of_torchaos_base_class_are_there() -> None:
    weight = make()
    doubled = weight._apply_fn_to_data(lambda part: part * 2)
    assert doubled.scale.tolist() == [[2.0], [2.0]]
    assert weight._same_metadata(doubled)
    assert not weight._same_metadata(make(style=Style.FAST))
    assert not weight._same_metadata(torch.zeros(2, 4))
    assert weight._get_to_kwargs("cpu", torch.float32, non_blocking=True) == {
        "device": torch.device("cpu"),
        "dtype": torch.float32,
        "non_blocking": True,
    }
    assert weight._get_to_kwargs(torch.strided, device="meta")["device"].type == "meta"
    names, metadata = weight.__tensor_flatten__()
    inner = {name: getattr(weight, name) for name in names}
    again = Listed.__tensor_unflatten__(inner, metadata, weight.shape, weight.stride())
    assert again._same_metadata(weight)


def test_operators_are_implemented_as_in_torchao_and_inherited() -> None:
    @register("listed.Child")
    class Child(Listed):
        pass

    fields = (torch.ones(2, 2, dtype=torch.uint8), torch.ones(2, 1), [1, 4], (2, 4), torch.float32)
    for weight in (make(), Child(*fields)):
        assert torch.relu(weight) == "relu"
        with pytest.raises((RuntimeError, TypeError), match="slice"):
            weight[0:1]  # torch wants a tensor; ours was asked


def test_a_class_that_takes_no_dtype_cannot_change_it() -> None:
    @register("listed.Fixed")
    class Fixed(VersionedTensor):
        tensor_data_names = ["qdata"]
        tensor_attribute_names: list[str] = []

        def __new__(cls, qdata):
            return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.float32)

        def __init__(self, qdata):
            self.qdata = qdata

    weight = Fixed(torch.zeros(3, dtype=torch.int8))
    with pytest.raises(UnsupportedOperationError, match=r"is always torch\.float32"):
        weight.to(torch.bfloat16)
    with pytest.raises(FieldError, match=r"saved as float32\[4\].* makes float32\[3\]"):
        from_record(to_record(weight).__class__(**{**fields_of(to_record(weight)), "shape": (4,)}))


def test_a_constructor_that_fails_is_a_fault_of_the_record() -> None:
    @register("listed.Picky")
    class Picky(VersionedTensor):
        tensor_data_names = ["qdata"]
        tensor_attribute_names = ["group"]

        def __new__(cls, qdata, group):
            return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=torch.float32)

        def __init__(self, qdata, group):
            if group != 1:
                raise RuntimeError(f"no groups of {group}")
            self.qdata, self.group = qdata, group

    record = to_record(Picky(torch.zeros(3), 1))
    assert from_record(record).group == 1
    with pytest.raises(FieldError, match=r"listed.Picky@1 refuses .*: no groups of 2"):
        from_record(record.set(group=2))


def fields_of(record: Any) -> dict[str, Any]:
    names = ("type", "version", "shape", "dtype", "attributes", "parts")
    return {name: getattr(record, name) for name in names}


# -- somebody else's ----------------------------------------------------------------------------


class Foreign(torch.Tensor):
    """Knows nothing of aoserial."""

    tensor_data_names = ["qdata", "scale"]
    tensor_attribute_names = ["block_size"]

    @staticmethod
    def __new__(cls, qdata, scale, block_size, dtype=torch.float32):
        return torch.Tensor._make_wrapper_subclass(cls, qdata.shape, dtype=dtype)

    def __init__(self, qdata, scale, block_size, dtype=torch.float32):
        self.qdata, self.scale, self.block_size = qdata, scale, block_size

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        raise NotImplementedError(str(func))


def test_a_foreign_class_is_registered_without_touching_it() -> None:
    before = dict(vars(Foreign))
    register_class(Foreign, type="listed.Foreign", version=3)
    assert {name: vars(Foreign)[name] for name in before} == before
    weight = Foreign(torch.zeros(2, 2), torch.ones(2, 1), [1, 2], torch.float16)
    record = to_record(weight)
    assert (record.type, record.version, record.dtype) == ("listed.Foreign", 3, "float16")
    again = from_record(record)
    assert type(again) is Foreign
    assert again.dtype == torch.float16
    assert again.block_size == (1, 2)  # nothing says that it was a list


@pytest.mark.parametrize(
    ("lists", "signature", "message"),
    [
        ({}, "qdata", "has no tensor_data_names"),
        ({"tensor_data_names": ["qdata", "zeros"]}, "qdata", "lists 'zeros', which"),
        ({"optional_tensor_data_names": ["scale"]}, "qdata, scale", "gives its optional 'scale'"),
        ({"tensor_attribute_names": ["grad"]}, "qdata, grad", "every tensor has an attribute"),
        (
            {"optional_tensor_attribute_names": ["odd"]},
            "qdata, odd=object()",
            "odd: a file cannot hold",
        ),
    ],
)
def test_a_foreign_class_whose_lists_do_not_fit_is_refused(
    lists: dict[str, list[str]], signature: str, message: str
) -> None:
    scope: dict[str, Any] = {}
    exec(f"def __init__(self, {signature}): pass", scope)
    namespace = {"__init__": scope["__init__"], "__module__": __name__, **lists}
    if lists:
        namespace = {"tensor_data_names": ["qdata"], "tensor_attribute_names": [], **namespace}
    cls = type("Broken", (torch.Tensor,), namespace)
    with pytest.raises((SchemaError, FieldError), match=message):
        register_class(cls, type="listed.Broken")
    assert CLASSES.find("listed.Broken") is None
