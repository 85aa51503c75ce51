"""Tensors of a pickle as data: which bytes of which storage, under which dtype. Torch-free.

A `StoragePart` is a plain tensor. The others wrap parts, and say by their own class what torch
would have made of them.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING

from aoserial.errors import BoundsError
from aoserial.storage.dtypes import check_bool
from aoserial.storage.part import LeafPart, Shape
from aoserial.storage.pickle.dtypes import ITEMSIZES, torch_dtype
from aoserial.storage.pickle.storages import Storage, read_part
from aoserial.storage.pickle.values import Name, Rebuilt, TorchDevice, Value, fields_of

if TYPE_CHECKING:
    import torch

MAX_INT = 2**63 - 1


class TypedStorage:
    """A storage seen as elements of a dtype, as a pickle refers to it: all of it, or a view.

    Attributes:
        storage: where the bytes are.
        dtype: that of the elements; `"uint8"` for an untyped storage.
        offset: of the view, in elements.
        count: elements.
    """

    __slots__ = ("count", "dtype", "offset", "storage")

    def __init__(self, storage: Storage, dtype: str, offset: int, count: int) -> None:
        self.storage = storage
        self.dtype = dtype
        self.offset = offset
        self.count = count

    @property
    def part(self) -> StoragePart:
        """Its elements as a flat tensor."""
        shape = (self.count,)
        return StoragePart(self.dtype, shape, (1,), self.offset, self.storage, contiguous=True)

    def __repr__(self) -> str:
        return f"<TypedStorage {self.storage.key}: {self.dtype}[{self.count}]>"


class StoragePart(LeafPart):
    """A plain tensor: a strided view of a storage, its bounds checked.

    Two parts with the same `storage` share it; with the same `place`, they are tied.

    Attributes:
        dtype: torch's name.
        shape: of the tensor.
        stride: in elements, as in torch.
        offset: in elements from the start of the storage.
        storage: the storage, one object for all that lie in it.
        contiguous: whether its elements lie one after the other.
        requires_grad: as saved.
        conjugate, negative: the stored values are the conjugates or negatives of the tensor's;
            `read` gives the tensor's.
    """

    __slots__ = (
        "conjugate",
        "contiguous",
        "negative",
        "offset",
        "requires_grad",
        "storage",
        "stride",
    )

    def __init__(
        self,
        dtype: str,
        shape: Shape,
        stride: Shape,
        offset: int,
        storage: Storage,
        *,
        contiguous: bool | None = None,
    ) -> None:
        """
        Args:
            contiguous: where it is known already.
        """
        self.dtype = dtype
        self.shape = shape
        self.stride = stride
        self.offset = offset
        self.storage = storage
        self.contiguous = is_contiguous(shape, stride) if contiguous is None else contiguous
        self.requires_grad = False
        self.conjugate = False
        self.negative = False

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZES[self.dtype]

    @property
    def span(self) -> int:
        """Elements of the storage from its first to its last, with what lies between them."""
        elements = math.prod(self.shape)
        if self.contiguous or not elements:
            return elements
        steps = zip(self.shape, self.stride, strict=True)
        return 1 + sum((size - 1) * stride for size, stride in steps)

    @property
    def place(self) -> tuple[str, str, Shape, Shape, int]:
        """What tied tensors of one file have in common."""
        return (self.storage.key, self.dtype, self.shape, self.stride, self.offset)

    def read(self) -> torch.Tensor:
        """The tensor, contiguous. Costs no memory when the file is mapped and it lies so there.

        Raises:
            LimitError: a view that repeats elements is too large to be written out.
            FormatError: a bool that is neither 0 nor 1.
        """
        return read_part(self)


class ArrayPart(LeafPart):
    """A NumPy array: its bytes lie in the pickle, little-endian, in C's or Fortran's order.

    Attributes:
        core: the package whose function made it: `"numpy.core"`, or NumPy 2's `"numpy._core"`.
    """

    __slots__ = ("core", "data", "fortran")

    def __init__(self, dtype: str, shape: Shape, data: bytes, *, fortran: bool = False) -> None:
        super().__init__(dtype, shape)
        self.data = data
        self.fortran = fortran
        self.core = "numpy.core"

    @property
    def nbytes(self) -> int:
        return len(self.data)

    def read(self) -> torch.Tensor:
        import torch  # torch-free module

        dtype = torch_dtype(self.dtype)
        if not self.data:
            return torch.empty(self.shape, dtype=dtype)
        raw = torch.frombuffer(bytearray(self.data), dtype=torch.uint8)
        if dtype is torch.bool:
            check_bool(raw)
        flat = raw.view(dtype)
        if self.fortran:
            axes = range(len(self.shape) - 1, -1, -1)
            return flat.reshape(self.shape[::-1]).permute(*axes).contiguous()
        return flat.reshape(self.shape)


class TorchTensor:
    """A tensor of torch's that is not strided and plain: quantized, sparse, nested or meta. Inert.

    Attributes:
        kind: `quantized`, `sparse_coo` and the other sparse layouts, `nested`, `meta`, `device`.
        dtype: torch's name.
        shape: None for a nested one.
        fields: its parts and parameters by torch's names for them.
        requires_grad: as saved.
        call: the function of torch's that makes it, and its arguments: what is written again.
    """

    __slots__ = ("call", "dtype", "fields", "kind", "requires_grad", "shape")

    def __init__(
        self,
        kind: str,
        dtype: str,
        shape: Shape | None,
        fields: dict[str, Value],
        requires_grad: bool = False,
    ) -> None:
        self.kind = kind
        self.dtype = dtype
        self.shape = shape
        self.fields = fields
        self.requires_grad = requires_grad
        self.call: tuple[Name, tuple[Value, ...]] | None = None

    def __repr__(self) -> str:
        return f"<TorchTensor, {self.kind}: {self.dtype}{list(self.shape or ())}>"


class _Subclass:
    """What has a class of its own, and attributes."""

    __slots__ = ("cls", "state")

    cls: Name
    state: Value

    @property
    def path(self) -> str:
        return self.cls.path

    @property
    def fields(self) -> dict[str, Value]:
        """Its attributes, those in slots among them."""
        return fields_of(self.state)


class WrapperSubclass(_Subclass):
    """A tensor subclass without bytes of its own: what it is made of is in its attributes.

    `torch._utils._rebuild_wrapper_subclass`, inside `torch._tensor._rebuild_from_type_v2`.

    Attributes:
        cls: the class it had.
        dtype: the logical dtype, torch's name.
        shape, stride, storage_offset: logical.
        layout: `"strided"`.
        device: where it was when it was saved.
        requires_grad: as saved.
        state: its attributes, mostly a dict; a pair of dicts when the class has slots.
    """

    __slots__ = (
        "device",
        "dtype",
        "layout",
        "requires_grad",
        "shape",
        "storage_offset",
        "stride",
    )

    def __init__(
        self,
        *,
        cls: Name,
        dtype: str,
        shape: Shape,
        stride: Shape,
        storage_offset: int,
        layout: str,
        device: TorchDevice,
        requires_grad: bool,
    ) -> None:
        self.cls = cls
        self.dtype = dtype
        self.shape = shape
        self.stride = stride
        self.storage_offset = storage_offset
        self.layout = layout
        self.device = device
        self.requires_grad = requires_grad
        self.state: Value = None

    def __repr__(self) -> str:
        return f"<WrapperSubclass {self.cls}: {self.dtype}{list(self.shape)}>"


class TensorSubclass(_Subclass):
    """A tensor with bytes and a class of its own, or with attributes that somebody set on it.

    Attributes:
        cls: the class it had; `torch.Tensor` when there are only attributes.
        data: the tensor itself.
        state: its attributes, as in `WrapperSubclass`.
    """

    __slots__ = ("data",)

    def __init__(self, cls: Name, data: Value, state: Value) -> None:
        self.cls = cls
        self.data = data
        self.state = state

    def __repr__(self) -> str:
        return f"<TensorSubclass {self.cls}: {self.data!r}>"


class ParameterValue:
    """A `torch.nn.Parameter` of a tensor; `state` is what was set on the parameter itself."""

    __slots__ = ("data", "requires_grad", "state")

    def __init__(self, data: Value, requires_grad: bool, state: Value = None) -> None:
        self.data = data
        self.requires_grad = requires_grad
        self.state = state

    def __repr__(self) -> str:
        return f"<ParameterValue of {self.data!r}>"


# What stands for one tensor in the tree; a NumPy array counts as one
TENSORS: tuple[type, ...] = (
    StoragePart,
    WrapperSubclass,
    Rebuilt,
    ParameterValue,
    TensorSubclass,
    TorchTensor,
    ArrayPart,
)


def is_tensor(value: Value) -> bool:
    """Whether a value of the tree stands for one tensor."""
    return type(value) in TENSORS


def contiguous(shape: Shape) -> Shape:
    """The strides of a tensor of that shape whose elements lie one after the other."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Shape, stride: Shape) -> bool:
    """Whether its elements lie one after the other; where there is one, any stride will do."""
    steps = zip(shape, stride, contiguous(shape), strict=True)
    return 0 in shape or all(size == 1 or step == wanted for size, step, wanted in steps)


@lru_cache(maxsize=256)  # a model has thousands of tensors, of a few shapes
def check_bounds(shape: Shape, stride: Shape, offset: int, count: int) -> bool:
    """Raises `BoundsError` unless a strided view lies inside a storage of `count` elements.

    All of them must be ints, and no bools.

    Returns:
        Whether the elements of the view lie one after the other.
    """
    if len(shape) != len(stride):
        raise BoundsError(f"has the shape {list(shape)} but the strides {list(stride)}")
    last = offset
    elements = 1
    empty, contiguous = False, True
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if not (0 <= size <= MAX_INT and 0 <= step <= MAX_INT):
            raise BoundsError(f"has the shape {list(shape)} with the strides {list(stride)}")
        if size > 1:
            contiguous = contiguous and step == elements
            last += (size - 1) * step
            elements *= size
        elif not size:
            empty = True
    if elements > MAX_INT:
        raise BoundsError(f"has the shape {list(shape)}, which is too large for any tensor")
    if offset < 0 or (offset > count if empty else last >= count):
        raise BoundsError(
            f"has the shape {list(shape)} with the strides {list(stride)} from element {offset} "
            f"on, which does not lie inside its storage of {count} elements"
        )
    return contiguous or empty
