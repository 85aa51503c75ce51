"""Python annotations as attribute types of a schema.

    int  float  bool  str  torch.dtype  Any     the same word in `schema.types`
    AnyDtype                                    dtype
    tuple[T, ...]  list[T]  torch.Size          list[T]
    T | None                                    T?
    a registered enum, dataclass                enum:ID, object:ID
    torch.Tensor, torch.Tensor | None           a tensor, an optional tensor

Anything else is no field that a file can hold.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass, is_dataclass, replace
from enum import Enum
from typing import Annotated, Any, Literal, TypeAlias

import torch

from aoserial.errors import SchemaError
from aoserial.storage.dtypes import dtype_name

# a dtype, or the name of one that torch lacks: "float6_e2m3fn" and "float6_e3m2fn"
AnyDtype: TypeAlias = Annotated[torch.dtype | str, "dtype"]

# class → its type text (`enum:ID`), or None if it is not registered
Lookup = Callable[[type], str | None]

_PLAIN: dict[object, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    str: "str",
    torch.dtype: "dtype",
    AnyDtype: "dtype",
    Any: "any",
    object: "any",
    None: "any",
    type(None): "any",
    torch.Size: "list[int]",
}
_SEQUENCES = (list, tuple, Sequence)


@dataclass(frozen=True, kw_only=True, slots=True)
class Hint:
    """What an annotation says.

    Attributes:
        text: the type, in the grammar of `schema.types`; unused for a tensor.
        sequence: what holds the items of a list type, as the class wants them.
        tensor: it is a tensor.
        optional: None is allowed.
    """

    text: str = "any"
    sequence: type[list[Any]] | type[tuple[Any, ...]] = tuple
    tensor: bool = False
    optional: bool = False


def any_dtype_name(dtype: AnyDtype) -> str:
    """`"bfloat16"` for `torch.bfloat16`; a name as it is."""
    return dtype if isinstance(dtype, str) else dtype_name(dtype)


def evaluate(annotation: object, scope: dict[str, Any]) -> object:
    """The annotation itself, where `from __future__ import annotations` left its text.

    Args:
        scope: the globals of the module the annotation stands in.

    Raises:
        NameError: it names something that the module does not hold, such as a local class.
    """
    # get_type_hints takes what carries annotations; from a class it takes ClassVar too
    carrier = type("carrier", (), {"__annotations__": {"it": annotation}})
    hints = typing.get_type_hints(carrier, scope, {}, include_extras=True)
    return hints["it"]


def hint(annotation: object, lookup: Lookup) -> Hint:
    """What an evaluated annotation says.

    Raises:
        SchemaError: it is not something a file can hold.
    """
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated and annotation not in _PLAIN:
        return hint(arguments[0], lookup)
    if origin in (typing.Union, types.UnionType):
        return _union(arguments, lookup)
    if annotation in _SEQUENCES or origin in _SEQUENCES:
        return _sequence(list if list in (annotation, origin) else tuple, arguments, lookup)
    if isinstance(annotation, type) and issubclass(annotation, torch.Tensor):
        return Hint(tensor=True)
    return Hint(text=_text(annotation, lookup), optional=annotation in (None, type(None)))


def _union(arguments: tuple[object, ...], lookup: Lookup) -> Hint:
    members = [hint(item, lookup) for item in arguments if item is not type(None)]
    optional = len(members) < len(arguments)
    if len(members) > 1:  # int | str: plain data without a check
        if any(member.tensor for member in members):
            raise SchemaError("a field is a tensor or an attribute, not either")
        return Hint(text="any", optional=optional)
    [member] = members
    if member.tensor or not optional or member.text == "any":
        return replace(member, optional=optional or member.optional)
    return replace(member, text=f"{member.text.removesuffix('?')}?", optional=True)


def _sequence(
    sequence: type[list[Any]] | type[tuple[Any, ...]],
    arguments: tuple[object, ...],
    lookup: Lookup,
) -> Hint:
    items = {hint(item, lookup) for item in arguments if item is not ...}
    item = items.pop() if len(items) == 1 else Hint()  # tuple[int, str]: unchecked items
    if item.tensor:
        raise SchemaError("a list of tensors cannot be a field; declare one field for each")
    return Hint(text=f"list[{item.text}]", sequence=sequence)


def _text(annotation: object, lookup: Lookup) -> str:
    if typing.get_origin(annotation) is Literal:
        kinds = {type(item) for item in typing.get_args(annotation)}
        return _PLAIN.get(kinds.pop(), "any") if len(kinds) == 1 else "any"
    if annotation in _PLAIN:
        return _PLAIN[annotation]
    if isinstance(annotation, type):
        if (text := lookup(annotation)) is not None:
            return text
        if issubclass(annotation, Enum) or is_dataclass(annotation):
            raise SchemaError(
                f"{annotation.__qualname__} is not registered: decorate it with @aoserial.register"
            )
    raise SchemaError(f"a file cannot hold {annotation!r}")
