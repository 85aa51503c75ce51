"""Which live class stands for which type id, and how its instances are made.

Three kinds of class are registered: tensor subclasses, dataclasses that are attributes of those,
and enums. The schemas themselves are in `aoserial.schema.REGISTRY`; this table adds the classes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any, TypeAlias

import torch

from aoserial.errors import SchemaError, UnregisteredClassError
from aoserial.schema import REGISTRY, EnumSchema, Missing, Registry, Schema, Value
from aoserial.tensors.hints import Hint

# torchao's names for required tensors and attributes, then optional ones
LISTS = (
    "tensor_data_names",
    "tensor_attribute_names",
    "optional_tensor_data_names",
    "optional_tensor_attribute_names",
)
# read from the wrapper tensor, never stored as attributes
WRAPPER_NAMES = frozenset({"shape", "dtype", "device"})


@dataclass(frozen=True, kw_only=True, eq=False)
class TensorClass:
    """A registered tensor subclass.

    Attributes:
        cls: the class.
        schema: the head of its type.
        tensors: names of the fields that hold tensors, required ones first.
        attributes: names of the others, required ones first.
        hints: attribute name → how its values look in Python.
        signature: of the constructor.
        listed: the class wrote `__new__` itself (torchao's convention), so instances are made by
            calling it; otherwise the wrapper is made here and the fields are set.
        takes: which of shape, dtype and device a listed class has as arguments.
    """

    cls: type[torch.Tensor]
    schema: Schema
    tensors: tuple[str, ...]
    attributes: tuple[str, ...]
    hints: Mapping[str, Hint]
    signature: inspect.Signature
    listed: bool = False
    takes: frozenset[str] = frozenset()

    @cached_property
    def absences(self) -> tuple[tuple[str, Value | Missing], ...]:
        """Attribute names with what their absence means; nothing (`MISSING`) if they must be."""
        return tuple((field.name, field.absent) for field in self.schema.attributes)

    def make(
        self,
        fields: Mapping[str, Any],
        *,
        shape: Sequence[int],
        dtype: torch.dtype,
        device: torch.device,
        strides: Sequence[int] | None = None,
    ) -> torch.Tensor:
        """An instance with these fields, unchecked.

        Args:
            fields: every field by name, live; None for an optional tensor that is absent.
            shape: the logical shape.
            dtype: the logical dtype.
            strides: of the wrapper, contiguous unless given.
        """
        if self.listed:
            wrapper = {"shape": shape, "dtype": dtype, "device": device}
            make: Callable[..., torch.Tensor] = self.cls
            return make(**fields, **{name: wrapper[name] for name in self.takes})
        tensor = make_wrapper(self.cls, shape, strides=strides, dtype=dtype, device=device)
        tensor.__dict__.update(fields)
        return tensor


# untyped in torch; makes a tensor of a subclass that has metadata and no bytes of its own
make_wrapper: Callable[..., torch.Tensor] = torch.Tensor._make_wrapper_subclass


@dataclass(frozen=True, kw_only=True, eq=False)
class ObjectClass:
    """A registered dataclass whose instances are attributes."""

    cls: type
    schema: Schema
    hints: Mapping[str, Hint]


@dataclass(frozen=True, kw_only=True, eq=False)
class EnumClass:
    """A registered enum; its members are stored by name."""

    cls: type[Enum]
    schema: EnumSchema


Entry: TypeAlias = TensorClass | ObjectClass | EnumClass


@dataclass
class Classes:
    """The table of live classes over a registry of schemas."""

    schemas: Registry = field(default_factory=lambda: REGISTRY)
    by_id: dict[str, Entry] = field(default_factory=dict)
    by_class: dict[type, Entry] = field(default_factory=dict)

    def check_free(self, type_id: str, cls: type) -> None:
        """Raises `SchemaError` if `cls` may not be registered under that id.

        The same qualified name may be registered again: a notebook cell that runs twice.
        """
        held = self.by_id.get(type_id)
        if held is not None and owner(held.cls) != owner(cls):
            raise SchemaError(
                f"{type_id} is already registered by {owner(held.cls)}, not by {owner(cls)}"
            )
        entry = self.by_class.get(cls)
        if entry is not None and entry.schema.type != type_id:
            raise SchemaError(f"{owner(cls)} is already registered as {entry.schema.type}")

    def add(self, entry: Entry) -> None:
        """Puts a class in the place of its id, which must be free for it."""
        held = self.by_id.get(entry.schema.type)
        # objects of a class that was merely run again can still be saved; of a changed one, not
        if held is not None and held.schema != entry.schema:
            del self.by_class[held.cls]
        self.by_id[entry.schema.type] = entry
        self.by_class[entry.cls] = entry

    def find(self, type_id: str) -> Entry | None:
        """The class of a type id, or None; lets plug-ins register it first."""
        if type_id not in self.by_id:
            self.schemas.find(type_id)
        return self.by_id.get(type_id)

    def of(self, cls: type) -> Entry | None:
        """The entry of exactly this class, or None: a subclass is a type of its own."""
        return self.by_class.get(cls)

    def tensor(self, cls: type) -> TensorClass:
        """The entry of a tensor subclass.

        Raises:
            UnregisteredClassError: it has none.
        """
        entry = self.by_class.get(cls)
        if not isinstance(entry, TensorClass):
            raise UnregisteredClassError(
                f"{owner(cls)} has no type id: decorate it with @aoserial.register, or call "
                f"aoserial.register_class on it"
            )
        return entry

    def __contains__(self, cls: object) -> bool:
        """Whether exactly this class is a registered tensor class."""
        return isinstance(cls, type) and isinstance(self.by_class.get(cls), TensorClass)


CLASSES = Classes()


def owner(cls: type) -> str:
    """`module.qualname`."""
    return f"{cls.__module__}.{cls.__qualname__}"
