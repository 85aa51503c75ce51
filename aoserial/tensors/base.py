"""`VersionedTensor`: the base of every quantized tensor class that aoserial can save.

An instance is a wrapper: it has a logical shape, dtype and device, and no bytes of its own. Its
fields are plain attributes: part tensors, and attribute values as Python has them.
"""

from __future__ import annotations

import hashlib
import inspect
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

from aoserial.errors import UnsupportedOperationError
from aoserial.kernels import (
    Weight,
    check_activation,
    eager_layer,
    is_traced,
    linear,
    prepared,
)
from aoserial.schema.shapes import Rule
from aoserial.storage.dtypes import dtype_name
from aoserial.tensors import sharding
from aoserial.tensors.checking import checked_fields, common_device, given_parts
from aoserial.tensors.classes import CLASSES, owner
from aoserial.tensors.dispatch import Dispatching
from aoserial.tensors.kept import NOTHING_KEPT, Kept
from aoserial.tensors.layout import Layout
from aoserial.tensors.live import freeze, own_copy, thaw
from aoserial.tensors.remembered import Matrices, Remembered

if TYPE_CHECKING:  # seconds to import
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import MixedPrecisionPolicy


class VersionedTensor(Dispatching):
    """A quantized tensor with a type id, an integer version and a schema.

    Subclass it, declare fields as annotations, and decorate with `@aoserial.register`:

        @aoserial.register("acme.Int4Tensor", version=1)
        class Int4Tensor(aoserial.VersionedTensor):
            qdata: torch.Tensor
            scale: torch.Tensor
            block_size: tuple[int, ...]
            zero_point: torch.Tensor | None = None

            def dequantize(self, dtype=None): ...

    The constructor takes required tensors, required attributes, optional tensors and optional
    attributes, in that order, and the logical `shape` and `dtype` by keyword; it checks them
    against the schema. A class that declares `tensor_data_names` and its companions itself, with
    its own `__new__` and `__init__` (torchao's convention), works as well.

    Laws, for every subclass:
        * the parts of an instance lie on one device, which is the instance's;
        * a view shares its parts' storage: writing to it writes to what it views;
        * `.to(dtype)` changes the logical dtype, what `dequantize` returns, and no part.

    Attributes:
        dims: names of the logical dimensions, as `("...", "N", "K")`; shape rules speak of them.
        ignorable: prefixes of field names that older readers may ignore.
        removed: name → version, of fields that are gone and whose names stay reserved.
        fill_of_zeros: name → what fills that part of a tensor of zeros, where that is not zero.
    """

    dims: ClassVar[Sequence[str] | None] = None
    ignorable: ClassVar[Sequence[str]] = ()
    removed: ClassVar[Mapping[str, int]] = {}
    fill_of_zeros: ClassVar[Mapping[str, float]] = {}
    tensor_data_names: ClassVar[list[str]]
    tensor_attribute_names: ClassVar[list[str]]
    optional_tensor_data_names: ClassVar[list[str]]
    optional_tensor_attribute_names: ClassVar[list[str]]
    _specs: ClassVar[dict[str, Any]]
    __signature__: ClassVar[inspect.Signature]
    _kept: Kept = NOTHING_KEPT
    _remembered: Remembered | None = None
    _matrices: Matrices | None = None
    # parts that a slice shares with the rest of the tensor it is cut from, and may not write to
    _borrowed: frozenset[str] = frozenset()

    def __new__(
        cls,
        *args: Any,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        **kwargs: Any,
    ) -> Self:
        """Checks the fields against the schema and makes the tensor.

        Args:
            shape: the logical shape; `logical_shape` of the fields unless given.
            dtype: the logical dtype; torch's default dtype unless given.

        Raises:
            TypeError: arguments that are missing, unknown or given twice.
            FieldError: fields outside the schema, or parts on several devices.
        """
        declared = CLASSES.tensor(cls)
        given = declared.signature.bind(*args, **kwargs)
        given.apply_defaults()
        parts = given_parts(declared, given.arguments)
        attributes = {name: given.arguments[name] for name in declared.attributes}
        size = tuple(cls.logical_shape(parts, attributes) if shape is None else shape)
        return declared.make(  # type: ignore[return-value]
            checked_fields(declared, parts, attributes, size),
            shape=size,
            dtype=torch.get_default_dtype() if dtype is None else dtype,
            device=common_device(parts),
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Does nothing: `__new__` sets the fields. (torch.Tensor's takes no arguments.)"""

    @classmethod
    def logical_shape(
        cls, parts: Mapping[str, torch.Tensor], attributes: Mapping[str, Any]
    ) -> Sequence[int]:
        """The shape of the tensor these fields stand for, for a constructor not told it.

        That of the first part; override it where codes are packed.
        """
        del attributes
        return next(iter(parts.values())).shape

    # -- what a quantized weight is for -----------------------------------------------------

    def dequantize(self, dtype: torch.dtype | None = None) -> torch.Tensor:
        """The plain tensor this one stands for, in its logical dtype unless another is given."""
        del dtype
        raise UnsupportedOperationError(f"{type(self).__name__} does not say how to dequantize")

    def kernel_weight(self) -> Weight | None:
        """The weight as kernels see it, or None for a type that only `dequantize` can compute."""
        return None

    def linear(self, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """`F.linear(x, self, bias)`.

        Args:
            x: [..., K], floating point.
            bias: [N].

        Returns:
            [..., N], in the dtype of `x`, or that of `torch.autocast` where it is on.
        """
        traced = is_traced(x)
        held = self._remembered
        if not traced and held is not None and held.holds_for(self):
            check_activation(x, held.weight.spec, bias, device=held.device)
            return eager_layer(held.prepared.run, held.canonical, x, bias, parts=held.parts)
        weight = self.kernel_weight()
        if weight is None:
            return F.linear(x, self.dequantize().to(x.dtype), bias)
        y = linear(x, weight, bias)
        if not traced and not is_traced(x, *weight.parts.values()):
            self._remember(weight)
        return y

    def matrices(self) -> Sequence[VersionedTensor]:
        """Of a stack [E, ..., N, K]: what it is along the first dimension, as views.

        They are the same objects each time, as long as the stack has the same fields, so that what
        they remember of being packed is not forgotten.
        """
        if torch.compiler.is_compiling():
            return torch.ops.aten.unbind.int(self)  # type: ignore[no-any-return]
        held = self._matrices
        fields = self._fields()
        if held is None or any(held.fields[name] is not value for name, value in fields.items()):
            held = self._matrices = Matrices(fields, torch.ops.aten.unbind.int(self))
        return held.matrices

    def _fields(self) -> dict[str, Any]:
        declared = CLASSES.tensor(type(self))
        return {name: getattr(self, name) for name in (*declared.tensors, *declared.attributes)}

    def _remember(self, weight: Weight) -> None:
        parts = tuple(weight.parts[name] for name in weight.spec.parts)
        names, values = zip(*self._fields().items(), strict=True)
        ready = prepared(weight)
        self._remembered = Remembered(names, values, weight, parts, parts[0].device, ready)

    # -- parts and metadata -----------------------------------------------------------------

    def part_names(self) -> list[str]:
        """The names of the attributes that hold tensors, those of ignored fields last."""
        declared = CLASSES.tensor(type(self))
        held = [name for name in declared.tensors if getattr(self, name) is not None]
        return held + list(self._kept.slots)

    def with_parts(
        self,
        parts: Mapping[str, torch.Tensor],
        *,
        shape: Sequence[int] | None = None,
        dtype: torch.dtype | None = None,
        strides: Sequence[int] | None = None,
        attributes: Mapping[str, Any] | None = None,
    ) -> Self:
        """A tensor like this one with other parts, unchecked.

        Args:
            parts: by attribute name; every one that `part_names` lists.
            shape: the logical shape, if it changes.
            dtype: the logical dtype, if it changes.
            strides: of the wrapper; contiguous unless given.
            attributes: those that change.
        """
        declared = CLASSES.tensor(type(self))
        changed = attributes or {}
        fields: dict[str, Any] = {name: parts.get(name) for name in declared.tensors}
        for name, hint in declared.hints.items():
            held = changed[name] if name in changed else getattr(self, name)
            fields[name] = own_copy(held, hint)
        tensor = declared.make(
            fields,
            shape=self.shape if shape is None else shape,
            dtype=self.dtype if dtype is None else dtype,
            device=common_device(parts),
            strides=strides,
        )
        if dtype is not None and tensor.dtype != dtype:  # a constructor that takes no dtype
            raise UnsupportedOperationError(f"{type(self).__name__} is always {tensor.dtype}")
        self._kept.attach(tensor, parts)
        return tensor  # type: ignore[return-value]

    def part_rule(self, name: str) -> Rule | None:
        """How the shape of a part follows from the tensor's: the rule that the schema gives it.

        A part without a rule belongs to the tensor as a whole and stays whole in its slices.
        Override it for a part whose rule depends on what it holds.
        """
        field = CLASSES.tensor(type(self)).schema.by_name.get(name)
        return None if field is None else field.shape

    def part_layout(self) -> Layout:
        """The shapes of the tensor and its parts, for `geometry`."""
        declared = CLASSES.tensor(type(self))
        names = self.part_names()
        return Layout(
            schema=declared.schema,
            shape=tuple(self.shape),
            attributes={name: getattr(self, name) for name in declared.attributes},
            parts={name: tuple(getattr(self, name).shape) for name in names},
            rules={name: self.part_rule(name) for name in names},
        )

    def _apply_fn_to_data(
        self,
        fn: Callable[[torch.Tensor], torch.Tensor],
        *,
        dtype: torch.dtype | None = None,
        strides: Sequence[int] | None = None,
    ) -> Self:
        """A tensor like this one whose every part is `fn` of this one's."""
        parts = {name: fn(getattr(self, name)) for name in self.part_names()}
        return self.with_parts(parts, dtype=dtype, strides=strides)

    def _same_metadata(self, other: object) -> bool:
        """Whether the two differ in the values of their parts at most."""
        if type(self) is not type(other) or not isinstance(other, VersionedTensor):
            return False
        names, metadata = self.__tensor_flatten__()
        other_names, other_metadata = other.__tensor_flatten__()
        if self.shape != other.shape or names != other_names or metadata != other_metadata:
            return False
        return all(_alike(getattr(self, name), getattr(other, name)) for name in names)

    def _get_to_kwargs(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """The device, dtype and non_blocking that arguments of `.to` or `_to_copy` ask for."""
        plain = [arg for arg in args if not isinstance(arg, torch.layout)]
        for ignored in ("layout", "memory_format", "pin_memory"):
            kwargs.pop(ignored, None)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*plain, **kwargs)
        return {
            "device": self.device if device is None else device,
            "dtype": self.dtype if dtype is None else dtype,
            "non_blocking": non_blocking,
        }

    def __tensor_flatten__(self) -> tuple[list[str], tuple[Any, ...]]:
        """The names of the part tensors, and the rest as a tuple that compares and hashes."""
        declared = CLASSES.tensor(type(self))
        attributes = tuple(freeze(getattr(self, name)) for name in declared.attributes)
        return self.part_names(), (self.dtype, attributes, self._kept)

    @classmethod
    def __tensor_unflatten__(
        cls,
        inner_tensors: Mapping[str, torch.Tensor],
        metadata: tuple[Any, ...],
        outer_size: Sequence[int],
        outer_stride: Sequence[int],
    ) -> torch.Tensor:
        declared = CLASSES.tensor(cls)
        dtype, attributes, kept = metadata
        fields: dict[str, Any] = {name: inner_tensors.get(name) for name in declared.tensors}
        for name, value in zip(declared.attributes, attributes, strict=True):
            fields[name] = thaw(value, declared.hints[name])
        tensor = declared.make(
            fields,
            shape=outer_size,
            dtype=dtype,
            device=next(iter(inner_tensors.values())).device,
            strides=outer_stride,
        )
        kept.attach(tensor, inner_tensors)
        return tensor

    def _stable_hash_for_caching(self) -> str:
        """All that a compiled graph depends on and no value, for the caches of torch.compile."""
        names, metadata = self.__tensor_flatten__()
        tensors = [self, *(getattr(self, name) for name in names)]
        facts = [
            (str(each.shape), str(each.stride()), each.dtype, each.device, each.requires_grad)
            for each in tensors
        ]
        told = pickle.dumps((owner(type(self)), names, metadata, facts))
        return hashlib.sha256(told).hexdigest()

    # -- FSDP2, which reads the names of these arguments ------------------------------------

    def fsdp_pre_all_gather(
        self,
        mesh: DeviceMesh,
        outer_size: torch.Size,
        outer_stride: tuple[int, ...],
        module: nn.Module,
        mp_policy: MixedPrecisionPolicy,
    ) -> tuple[tuple[torch.Tensor, ...], sharding.Gathered]:
        """What is gathered of this shard, and how to read it."""
        del outer_stride, module, mp_policy  # codes are sent as they are, in any precision
        return sharding.before_all_gather(self, mesh.size(), outer_size)

    def fsdp_post_all_gather(
        self,
        all_gather_outputs: tuple[torch.Tensor, ...],
        metadata: sharding.Gathered,
        param_dtype: torch.dtype,
        *,
        out: torch.Tensor | None = None,
    ) -> tuple[VersionedTensor, tuple[torch.Tensor, ...]] | None:
        """The whole weight, with `param_dtype` as its logical dtype."""
        return sharding.after_all_gather(self, all_gather_outputs, metadata, param_dtype, out)

    # -- what the default would get wrong ---------------------------------------------------

    def share_memory_(self) -> Self:
        """Moves every part to shared memory. (The wrapper has no storage to move.)"""
        for name in self.part_names():
            getattr(self, name).share_memory_()
        return self

    def is_shared(self) -> bool:
        """Whether every part lies in shared memory."""
        return all(getattr(self, name).is_shared() for name in self.part_names())

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        """One line: type, shape, dtype, device, attributes and what the parts are, no data."""
        del tensor_contents
        if type(self) not in CLASSES:
            return f"<{owner(type(self))}, not registered>"
        names = CLASSES.tensor(type(self)).attributes
        attributes = {name: getattr(self, name) for name in names}
        told = [f"{name}={value!r}" for name, value in attributes.items() if value is not None]
        told += [f"{name}: {dtype_name(getattr(self, name).dtype)}" for name in self.part_names()]
        head = f"{list(self.shape)}, {dtype_name(self.dtype)}, {self.device}"
        return f"{type(self).__name__}({', '.join([head, *told])})"


def _alike(part: torch.Tensor, other: torch.Tensor) -> bool:
    return part.shape == other.shape and part.dtype == other.dtype
