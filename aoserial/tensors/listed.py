"""Classes that name their fields in four lists and make their instances themselves.

That is the convention of torchao's TorchAOBaseTensor: `tensor_data_names`,
`tensor_attribute_names`, `optional_tensor_data_names`, `optional_tensor_attribute_names`, and a
`__new__` and `__init__` that take them in that order.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import torch

from aoserial.errors import SchemaError, locating
from aoserial.schema import MISSING, Field, Missing, Schema, Value
from aoserial.tensors.base import VersionedTensor
from aoserial.tensors.classes import LISTS, WRAPPER_NAMES, Classes, TensorClass, owner
from aoserial.tensors.fieldspec import check_name, first_line, type_text
from aoserial.tensors.hints import Hint, evaluate, hint
from aoserial.tensors.live import dump


def is_listed(cls: type) -> bool:
    """Whether the class names its fields in lists, and makes its instances itself."""
    if issubclass(cls, VersionedTensor) and cls.__new__ is VersionedTensor.__new__:
        return False
    return all(hasattr(cls, names) for names in LISTS[:2])


def declare_lists(
    cls: type[torch.Tensor], type_id: str, version: int, classes: Classes
) -> TensorClass:
    """The declaration of such a class.

    Absence-defaults are those of the constructor's signature; types are its annotations where they
    can be understood, and `any` elsewhere.

    Raises:
        SchemaError: a listed name that is no argument, or an optional one without a default.
    """
    listed = [tuple(getattr(cls, names, None) or ()) for names in LISTS]
    order = tuple(tuple(name for name in names if name not in WRAPPER_NAMES) for names in listed)
    constructor = _constructor(cls)
    signature = inspect.signature(constructor)
    arguments = dict(list(signature.parameters.items())[1:])  # without cls or self
    hints: dict[str, Hint] = {}
    fields: list[Field] = []
    for name in (name for names in order for name in names):
        with locating(field=name):
            check_name(name, cls)
            if name not in arguments:
                raise SchemaError(f"{owner(cls)} lists {name!r}, which its constructor lacks")
            hints[name] = _hint(constructor, arguments[name].annotation, classes)
            absent: Value | Missing = MISSING
            if name in order[2] + order[3]:
                absent = _absent(arguments[name], cls, classes)
            is_tensor = name in order[0] + order[2]
            kind, text = ("tensor", "any") if is_tensor else ("attribute", hints[name].text)
            fields.append(Field(name=name, kind=kind, type=text, absent=absent))  # type: ignore[arg-type]
    schema = Schema(type=type_id, version=version, fields=tuple(fields), doc=first_line(cls))
    return TensorClass(
        cls=cls,
        schema=schema,
        hints={name: hints[name] for name in order[1] + order[3]},
        signature=signature,
        listed=True,
        takes=WRAPPER_NAMES & set(arguments),
        tensors=order[0] + order[2],
        attributes=order[1] + order[3],
    )


def _absent(argument: inspect.Parameter, cls: type, classes: Classes) -> Value:
    if argument.default is inspect.Parameter.empty:
        raise SchemaError(f"{owner(cls)} gives its optional {argument.name!r} no default")
    return dump(argument.default, classes)


def _hint(constructor: Callable[..., Any], annotation: object, classes: Classes) -> Hint:
    """What an annotation of the constructor says, or `any` where it says nothing we understand."""
    if annotation is inspect.Parameter.empty:
        return Hint()
    try:
        scope = getattr(constructor, "__globals__", {})
        return hint(evaluate(annotation, scope), type_text(classes))
    except (SchemaError, NameError, AttributeError, TypeError):
        return Hint()


def _constructor(cls: type) -> Callable[..., Any]:
    """The class's `__init__`, or its `__new__`: whichever the nearest class has."""
    for base in cls.__mro__:
        if base in (VersionedTensor, torch.Tensor):
            break
        for name in ("__init__", "__new__"):
            held = vars(base).get(name)
            if held is not None:
                function: Callable[..., Any] = getattr(held, "__func__", held)
                return function
    raise SchemaError(f"{owner(cls)} lists its fields but has no constructor that takes them")
