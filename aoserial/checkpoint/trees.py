"""A pickle's tree with its tensors alive, and a live tree as what a pickle holds."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any

import torch

from aoserial.checkpoint.gathering import check_plain, record_of
from aoserial.checkpoint.marks import Mark
from aoserial.errors import UnsupportedTensorError
from aoserial.storage.dtypes import dtype_name
from aoserial.storage.pickle import (
    ArrayPart,
    MemoryStorage,
    ParameterValue,
    Rebuilt,
    StateDict,
    StoragePart,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
    TypedStorage,
    Value,
)
from aoserial.storage.pickle.copying import STAYS, attributes_of, copy_tree
from aoserial.storage.pickle.views import SharedStorages
from aoserial.tensors import InertTensor, Loaded
from aoserial.tensors.assembling import tensor_of
from aoserial.tensors.pickling import arguments_of


def live_tree(root: Value, tensors: Mapping[int, Loaded]) -> Any:
    """What was saved, with its own dicts, lists and keys; unknown objects stay inert.

    An OrderedDict is one again, with its `_metadata`; NumPy arrays are arrays where NumPy is
    installed; dtypes, sizes and devices are torch's.

    Args:
        tensors: id of a value in the tree → the tensor that it stands for.
    """

    shared = SharedStorages()

    def leaf(value: Value) -> Any:
        if id(value) in tensors:
            return tensors[id(value)]
        if type(value) is StoragePart:  # inside an unknown object
            tensor = shared.view(value)
            return Mark(False, True).put_on(tensor) if value.requires_grad else tensor
        if type(value) is TypedStorage:
            memory = MemoryStorage(shared.bytes_of(value.storage).untyped_storage())
            return TypedStorage(memory, value.dtype, value.offset, value.count)
        revive = _LIVE.get(type(value))
        return STAYS if revive is None else revive(value)

    return copy_tree(root, leaf, {StateDict: _ordered})


def _ordered(value: StateDict) -> OrderedDict[Any, Any]:
    """An OrderedDict, unless it has attributes that could hide something of it."""
    known = set(attributes_of(value) or ()) <= {"_metadata"}
    return OrderedDict() if known else StateDict()


def _dtype(value: TorchDtype) -> Any:
    return getattr(torch, value.name, value)


def _layout(value: TorchLayout) -> Any:
    return getattr(torch, value.name, value)


def _device(value: TorchDevice) -> Any:
    try:
        return torch.device(str(value))
    except RuntimeError:
        return value  # of a kind that this torch does not know


def _array(value: ArrayPart) -> Any:
    try:
        return value.read().numpy()
    except RuntimeError:
        return value  # NumPy is not installed


_LIVE: dict[type, Callable[[Any], Any]] = {
    TorchDtype: _dtype,
    TorchLayout: _layout,
    TorchDevice: _device,
    TorchSize: torch.Size,
    ArrayPart: _array,
}


def saved_tree(root: Any) -> Value:
    """A live tree as inert values, for `storage.pickle.write_archive`. Nothing is copied.

    Tensors of one storage share one in the file. Quantized tensors become `aoserial._rebuild`;
    inert ones are again what they were.

    Raises:
        UnsupportedTensorError, UnregisteredClassError: a tensor that no file can hold.
    """
    storages: dict[int, MemoryStorage] = {}

    def leaf(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return _saved(value, storages)
        if isinstance(value, InertTensor):
            return copy_tree(_of_inert(value, storages), leaf)
        known = _SAVED.get(type(value))
        if known is not None:
            return known(value)
        numpy = sys.modules.get("numpy")
        return _saved_array(value) if numpy and isinstance(value, numpy.ndarray) else STAYS

    return copy_tree(dict(root) if type(root) not in _PLAIN_DICTS else root, leaf)


_PLAIN_DICTS = (dict, OrderedDict, StateDict)


def _saved(tensor: torch.Tensor, storages: dict[int, MemoryStorage]) -> Value:
    if isinstance(tensor, torch.nn.Parameter):
        return ParameterValue(_saved(tensor.detach(), storages), tensor.requires_grad)
    record = record_of(tensor)
    if record is None:
        return _plain(tensor, storages)
    parts = {name: _plain(tensor_of(part), storages) for name, part in record.parts.items()}
    return Rebuilt(record.type, record.version, (*arguments_of(record), parts))


def _plain(tensor: torch.Tensor, storages: dict[int, MemoryStorage]) -> StoragePart:
    check_plain(tensor)
    storage = tensor.untyped_storage()
    held = storages.get(storage._cdata)
    if held is None:
        held = storages[storage._cdata] = MemoryStorage(storage)
    part = StoragePart(
        dtype_name(tensor.dtype),
        tuple(tensor.shape),
        tensor.stride(),
        int(tensor.storage_offset()),
        held,
    )
    part.contiguous = tensor.is_contiguous()
    part.requires_grad = tensor.requires_grad
    return part


def _of_inert(inert: InertTensor, storages: dict[int, MemoryStorage]) -> Value:
    if inert.pickled is not None:
        return inert.pickled
    record = inert.record
    if inert.fingerprint is None:
        raise UnsupportedTensorError(
            f"is inert, and a {record.type} of a safetensors file has no form in a pickle"
        )
    parts = {name: _plain(part.read(), storages) for name, part in record.parts.items()}
    head = arguments_of(record, proof=inert.fingerprint)
    return Rebuilt(record.type, record.version, (*head, parts))


def _saved_array(array: Any) -> ArrayPart:
    try:
        tensor = torch.from_numpy(array)
    except TypeError as error:
        raise UnsupportedTensorError(f"a NumPy array of {array.dtype} cannot be saved") from error
    return ArrayPart(dtype_name(tensor.dtype), tuple(tensor.shape), array.tobytes())


_SAVED: dict[type, Callable[[Any], Any]] = {
    torch.dtype: lambda value: TorchDtype(dtype_name(value)),
    torch.layout: lambda value: TorchLayout(str(value).removeprefix("torch.")),
    torch.device: lambda value: TorchDevice(value.type, value.index),
    torch.Size: TorchSize,
}
