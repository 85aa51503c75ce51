"""The torchao that is installed: its own classes, made of our records. Imported when asked for.

Classes, objects and enums are looked up under the names below, never under one that a file says.
What each takes is read off its constructor, since releases differ in that.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from typing import Any

import torch
from packaging.version import Version

from aoserial.errors import AoserialError, UnsupportedOperationError, UnsupportedTensorError
from aoserial.record import Record
from aoserial.schema import MISSING, REGISTRY, Nested, Symbol, Value
from aoserial.storage.dtypes import torch_dtype
from aoserial.tensors.convert import Build
from aoserial.torchao.counterparts import counterpart
from aoserial.torchao.homes import HOMES, RENAMED

OLDEST = Version("0.16")  # before that, classes had other fields and other arithmetic

# what torchao holds as a tuple; all other sequences are lists
_TUPLES = {
    ("torchao.PerBlock", "block_size"),
    ("torchao.CodebookQuantizedTensor", "block_size"),
}
# parts that a class may lack where they are zeros: 0.16 has no zero points of int8
_ZEROS = {("torchao.Int8Tensor", "zero_point")}
# what a class without such an argument has all the same, beside the absence-defaults of schemas
_ALWAYS = {
    ("torchao.OptimState8bit", "dtype"): "float32",
    ("torchao.OptimState4bit", "dtype"): "float32",
    ("torchao.OptimStateFp8", "dtype"): "float32",
}


class Installed:
    """The installed torchao.

    Attributes:
        release: its version.
        notes: what its arithmetic does otherwise than a record says, a sentence each.
    """

    def __init__(self) -> None:
        """
        Raises:
            UnsupportedOperationError: there is none, it cannot be imported, or it is too old.
        """
        try:
            torchao = import_module("torchao")
        except ModuleNotFoundError as error:
            if error.name != "torchao":
                raise _broken(error) from error
            raise UnsupportedOperationError(
                "into='torchao' needs torchao, which is not installed: pip install torchao"
            ) from error
        except Exception as error:
            raise _broken(error) from error
        self.release = Version(torchao.__version__)
        if self.release < OLDEST:
            raise UnsupportedOperationError(
                f"into='torchao' knows torchao {OLDEST} and later, {self.release} is installed"
            )
        self.notes: dict[str, None] = {}

    def counterpart(self, record: Record) -> Record:
        """A record of ours as arguments of a constructor of torchao's.

        Raises:
            UnsupportedTensorError: this release has no class that holds the same.
        """
        theirs = counterpart(record)
        cls = self._find(theirs.type)
        theirs = theirs.drop(*self._left_out(theirs, cls))
        slots = [
            torch.empty(part.shape, dtype=torch_dtype(part.dtype), device="meta")
            for part in theirs.parts.values()
        ]
        self.builder(theirs)(slots)  # the class's own checks, before anything is read
        self._compare_arithmetic(record)
        return theirs

    def builder(self, record: Record) -> Build:
        """A function that makes tensors of what `counterpart` gave, of parts in their order."""
        cls = self._find(record.type)
        attributes = {
            name: self._live(record.type, name, value) for name, value in record.attributes.items()
        }
        names = tuple(record.parts)
        takes = _parameters(cls)
        zeros = [name for kind, name in _ZEROS if kind == record.type and name not in takes]
        with_meta = "tensor_meta" in takes
        meta = self._find("torchao.SubclassTensorArgs") if with_meta else None
        dtype = torch_dtype(record.dtype)

        def build(parts: Any) -> torch.Tensor:
            held = dict(zip(names, parts, strict=True))
            for name in zeros:
                self._drop_zeros(held, name)
            own = {name: _copy(value) for name, value in attributes.items()}
            if meta is not None:
                device = parts[0].device
                strides = torch.empty(record.shape, device="meta").stride()
                shape = torch.Size(record.shape)
                own["tensor_meta"] = meta(shape, strides, 0, dtype, device, False)
            try:
                tensor: torch.Tensor = cls(**held, **own)
            except Exception as error:  # of torchao's constructor
                raise UnsupportedTensorError(
                    f"torchao {self.release}'s {cls.__name__} refuses it: {error}"
                ) from error
            if tuple(tensor.shape) != record.shape or tensor.dtype != dtype:
                raise UnsupportedTensorError(
                    f"torchao {self.release}'s {cls.__name__} would be a {tensor.dtype}"
                    f"{list(tensor.shape)}, not {record.dtype}{list(record.shape)}"
                )
            return tensor

        return build

    def _left_out(self, record: Record, cls: type) -> list[str]:
        """Attributes that the class does not take and need not, since all its tensors are so."""
        takes = _parameters(cls)
        if any(one.kind is inspect.Parameter.VAR_KEYWORD for one in takes.values()):
            return []
        unknown = [name for name in (*record.attributes, *record.parts) if name not in takes]
        schema = REGISTRY.types.get(record.type)
        for name in unknown:
            field = schema.head.by_name.get(name) if schema else None
            absent = _ALWAYS.get((record.type, name), MISSING if field is None else field.absent)
            if (record.type, name) in _ZEROS:
                continue  # looked at when it is read
            if name in record.parts or record.attributes[name] != absent:
                raise self._lacking(f"{cls.__name__} with {name}")
        return [name for name in unknown if name in record.attributes]

    def _drop_zeros(self, held: dict[str, torch.Tensor], name: str) -> None:
        part = held.pop(name, None)
        if part is not None and not part.is_meta and part.any():
            raise self._lacking(f"class for such a {name}; there is none where it is not zero")

    def _live(self, kind: str, name: str, value: Value) -> Any:
        """An attribute as torchao holds it."""
        if isinstance(value, Symbol):
            return self._member(value)
        if isinstance(value, Nested):
            return self._object(value)
        if isinstance(value, tuple):
            items = [self._live(kind, name, item) for item in value]
            if name == "shape":
                return torch.Size(items)
            return tuple(items) if (kind, name) in _TUPLES else items
        if isinstance(value, str) and name.endswith("dtype"):
            dtype = getattr(torch, value, None)
            return dtype if isinstance(dtype, torch.dtype) else value  # "fp6_e2m3" is none
        return value

    def _member(self, value: Symbol) -> Any:
        members = self._find(value.enum).__members__  # type: ignore[attr-defined]
        declared = REGISTRY.enums.get(value.enum)
        if value.name in members:
            return members[value.name]
        if declared is not None and declared.fallback in members:
            return members[declared.fallback]  # a hint that this release does not know
        raise self._lacking(f"{value.enum.removeprefix('torchao.')}.{value.name}")

    def _object(self, value: Nested) -> Any:
        cls = self._find(value.type)
        known = {one.name for one in fields(cls)} if is_dataclass(cls) else set(cls._fields)  # type: ignore[attr-defined]
        schema = REGISTRY.types.get(value.type)
        given = {}
        for name, item in value.fields.items():
            if name in known:
                given[name] = self._live(value.type, name, item)
            elif schema is None or item != schema.head.by_name[name].absent:
                raise self._lacking(f"{cls.__name__} with {name}")
        return cls(**given)

    def _find(self, kind: str) -> type:
        name = RENAMED.get(kind, kind.removeprefix("torchao."))
        for module in HOMES[kind]:
            found = _attribute(module, name)
            if isinstance(found, type):
                return found
        raise self._lacking(name)

    def _lacking(self, what: str) -> AoserialError:
        return UnsupportedTensorError(f"torchao {self.release} has no {what}")

    def _compare_arithmetic(self, record: Record) -> None:
        """0.18 multiplies the scales of NVFP4 in float32, those before in the weight's dtype."""
        if record.type != "aoserial.NVFP4Tensor" or "per_tensor_scale" not in record.parts:
            return
        theirs = "float32" if self.release >= Version("0.18") else record.dtype
        said = record.attributes["scale_product_dtype"]
        if said != theirs:
            note = (
                f"torchao {self.release} multiplies the scales of NVFP4 in {theirs}, not in {said}"
            )
            self.notes[f"{note}: values may differ in the last bit"] = None


def _broken(error: Exception) -> UnsupportedOperationError:
    return UnsupportedOperationError(f"torchao is installed and cannot be imported: {error}")


@cache
def _attribute(module: str, name: str) -> object:
    try:
        return getattr(import_module(module), name, None)
    except ImportError:
        return None


def _parameters(cls: type) -> Mapping[str, inspect.Parameter]:
    make: Callable[..., Any] = cls.__new__
    return inspect.signature(make).parameters


def _copy(value: Any) -> Any:
    return list(value) if type(value) is list else value
