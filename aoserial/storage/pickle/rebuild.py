"""Calls of torch's own functions that stand for tensors, by name and exact shape. Torch-free.

Each function here reads the arguments of one of torch's (`torch/_utils.py`, `torch/_tensor.py` of
1.6 to 2.13) and gives the tensor as data, or None when they are not what torch passes: such a call
stays an unknown object. A tensor outside its storage is an error, never an unknown.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aoserial.errors import BoundsError
from aoserial.storage.pickle.context import Context
from aoserial.storage.pickle.dtypes import COMPLEX, NEGATIVE
from aoserial.storage.pickle.layouts import device_tensor, meta, nested, quantized, sparse
from aoserial.storage.pickle.tensors import (
    MAX_INT,
    ArrayPart,
    ParameterValue,
    StoragePart,
    TensorSubclass,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
)
from aoserial.storage.pickle.values import (
    Name,
    Rebuilt,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    Value,
)

Arguments: TypeAlias = tuple[Value, ...]


# -- strided tensors ----------------------------------------------------------------------------


def _tensor(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_tensor(storage, offset, size, stride)`: before torch 0.4."""
    if len(arguments) != 4 or type(arguments[0]) is not TypedStorage:
        return None
    storage, offset, size, stride = arguments
    return context.part(storage, storage.dtype, offset, size, stride)


def _tensor_v2(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, metadata)`."""
    if not 6 <= len(arguments) <= 7 or type(arguments[0]) is not TypedStorage:
        return None
    storage, offset, size, stride, requires_grad, hooks, *metadata = arguments
    part = context.part(storage, storage.dtype, offset, size, stride)
    _mark(context, part, requires_grad, hooks, metadata)
    return part


def _tensor_v3(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_tensor_v3(…, hooks, dtype, metadata)`: dtypes that have no storage class."""
    if not 7 <= len(arguments) <= 8 or type(arguments[0]) is not TypedStorage:
        return None
    storage, offset, size, stride, requires_grad, hooks, dtype, *metadata = arguments
    if type(dtype) is not TorchDtype:
        return None
    part = context.part(storage, dtype.name, offset, size, stride)
    _mark(context, part, requires_grad, hooks, metadata)
    return part


def _mark(
    context: Context, part: StoragePart, requires_grad: Value, hooks: Value, metadata: list[Value]
) -> None:
    part.requires_grad = requires_grad is True
    if hooks:
        context.see_hooks(hooks)
    # torch marks lazy conjugates and negatives by {"conj": True, "neg": True}
    for marks in metadata:
        if type(marks) is dict:
            part.conjugate = marks.get("conj") is True and part.dtype in COMPLEX
            part.negative = marks.get("neg") is True and part.dtype in NEGATIVE


def _parameter(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_parameter(data, requires_grad, hooks)`, and the same `_with_state`."""
    match arguments:
        case (data, bool() as requires_grad, hooks, *state) if len(state) <= 1 and _is_tensor(data):
            context.see_hooks(hooks)
            return ParameterValue(data, requires_grad, state[0] if state else None)
    return None


def _is_tensor(value: Value) -> bool:
    return isinstance(value, StoragePart | WrapperSubclass | TensorSubclass | TorchTensor | Rebuilt)


# -- subclasses ---------------------------------------------------------------------------------


def _wrapper(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_wrapper_subclass(cls, dtype, size, stride, offset, layout, device, grad)`."""
    if len(arguments) != 8 or tuple(map(type, arguments)) not in _WRAPPER_TYPES:
        return None
    cls, dtype, size, stride, offset, layout, device, requires_grad = arguments
    shape, strides = context.sizes(size), context.sizes(stride)
    if min(*shape, *strides, offset, 0) < 0 or max(*shape, *strides, offset, 0) > MAX_INT:
        raise BoundsError(f"has the shape {list(shape)} with the strides {list(strides)}")
    return WrapperSubclass(
        cls=cls,
        dtype=dtype.name,
        shape=shape,
        stride=strides,
        storage_offset=offset,
        layout=layout.name,
        device=device,
        requires_grad=requires_grad,
    )


_WRAPPER_TYPES = frozenset(
    (Name, TorchDtype, size, tuple, int, TorchLayout, TorchDevice, bool)
    for size in (tuple, TorchSize)
)


def _from_type(context: Context, arguments: Arguments) -> Value | None:
    """`_rebuild_from_type_v2(function, class, arguments, state)`, and the same without `_v2`."""
    match arguments:
        case (Name() as function, Name() as cls, tuple() as inner, state):
            known = TORCH.get((function.module, function.name))
            # torch does not nest it, and a million of them inside each other must not recurse
            if known is None or known is _from_type:
                return None
            tensor = known(context, inner)
            if type(tensor) is WrapperSubclass:
                tensor.state = state
                # one object, as nearly always: comparing two takes longer
                return tensor if tensor.cls is cls or tensor.cls == cls else None
            note_call(tensor, function, inner)
            return TensorSubclass(cls, tensor, state) if _is_tensor(tensor) else None
    return None


# Values that `note_call` has something to keep with
NOTED = frozenset({TorchTensor, ArrayPart})


def note_call(found: Value | None, function: Name, arguments: Arguments) -> None:
    """Keeps with a value how it was made, where that says more than the value does."""
    if type(found) is TorchTensor:
        found.call = function, arguments
    elif type(found) is ArrayPart:
        found.core = function.module.rpartition(".")[0]


def _ours(_: Context, arguments: Arguments) -> Value | None:
    """`aoserial._rebuild(type id, version, …)`."""
    match arguments:
        case (str() as type_id, int() as version, *rest) if version is not True:
            return Rebuilt(type_id, version, tuple(rest))
    return None


TORCH: dict[tuple[str, str], Callable[[Context, Arguments], Value | None]] = {
    ("torch._utils", "_rebuild_tensor"): _tensor,
    ("torch._utils", "_rebuild_tensor_v2"): _tensor_v2,
    ("torch._utils", "_rebuild_tensor_v3"): _tensor_v3,
    ("torch._utils", "_rebuild_parameter"): _parameter,
    ("torch._utils", "_rebuild_parameter_with_state"): _parameter,
    ("torch._utils", "_rebuild_wrapper_subclass"): _wrapper,
    ("torch._utils", "_rebuild_qtensor"): quantized,
    ("torch._utils", "_rebuild_sparse_tensor"): sparse,
    ("torch._utils", "_rebuild_nested_tensor"): nested,
    ("torch._utils", "_rebuild_meta_tensor_no_storage"): meta,
    ("torch._utils", "_rebuild_device_tensor_from_cpu_tensor"): device_tensor,
    ("torch._utils", "_rebuild_device_tensor_from_numpy"): device_tensor,
    ("torch._utils", "_rebuild_xla_tensor"): device_tensor,
    # torch 1.9 moved `torch.tensor` to `torch._tensor`
    **{
        (module, name): _from_type
        for module in ("torch._tensor", "torch.tensor")
        for name in ("_rebuild_from_type", "_rebuild_from_type_v2")
    },
    ("aoserial", "_rebuild"): _ours,
}
