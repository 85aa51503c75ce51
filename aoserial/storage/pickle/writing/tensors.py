"""How tensors are written: calls of torch's own functions, which every release of it knows.

Torch-free.
"""

from __future__ import annotations

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.part import Part
from aoserial.storage.pickle.dtypes import ITEMSIZES, STORAGE_DTYPES
from aoserial.storage.pickle.memory import stored
from aoserial.storage.pickle.storages import Storage
from aoserial.storage.pickle.tensors import (
    ParameterValue,
    StoragePart,
    TensorSubclass,
    TorchTensor,
    TypedStorage,
    WrapperSubclass,
)
from aoserial.storage.pickle.values import Name, TorchLayout, Value
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.emitter import Emitter, Handler, Inside
from aoserial.storage.pickle.writing.objects import device, layout
from aoserial.storage.pickle.writing.records import CLASSES, UNTYPED, Record


def _hooks(e: Emitter) -> bytes:
    """Backward hooks, of which each tensor has its own dict: torch writes it empty."""
    return e.name("collections", "OrderedDict") + op.EMPTY_TUPLE + op.REDUCE


# -- storages -------------------------------------------------------------------------------------


def _record_of(e: Emitter, storage: Storage, dtype: str, value: Value) -> Record:
    """The record of a storage; a new one has the class that it is known to need, or its dtype's."""
    record = e.records.get(id(storage))
    if record is None:
        cls = e.classes.get(id(storage)) or CLASSES.get(dtype, UNTYPED)
        record = e.records[id(storage)] = Record(storage, str(len(e.records)), cls, value)
    return record


def _refer(e: Emitter, record: Record) -> None:
    """`("storage", class, key, location, elements)` as a persistent id."""
    if not e.recall(record):
        module = "torch.storage" if record.cls == UNTYPED else "torch"
        code = op.MARK + e.text("storage") + e.name(module, record.cls)
        code += op.text(record.key) + e.text(record.storage.location)
        record.size_at = len(e.code) + 1
        e.code += (code, b"", op.TUPLE + op.BINPERSID + e.remember(record))


def _typed_storage(e: Emitter, value: TypedStorage) -> None:
    record = _record_of(e, value.storage, value.dtype, value)
    record.add_whole(value)
    _refer(e, record)


# -- plain tensors --------------------------------------------------------------------------------


def _strided(e: Emitter, part: StoragePart) -> None:
    if not e.recall(part):
        _call(e, part, part)
        e.code.append(op.REDUCE + e.remember(part))


def _call(e: Emitter, value: Value, part: StoragePart, cls: Name | None = None) -> None:
    """The function that makes it, a class if there is one, and the arguments.

    `_rebuild_tensor_v2(storage, offset, size, stride, requires_grad, hooks, [metadata])`; the third
    version has a dtype before the metadata, and so needs no storage that says it.

    Args:
        value: which has the part, or is it.
    """
    if part.dtype not in ITEMSIZES:
        raise UnsupportedTensorError(f"torch has no dtype {part.dtype}")
    record = _record_of(e, part.storage, part.dtype, value)
    typed = STORAGE_DTYPES.get(record.cls) == part.dtype
    code = e.name("torch._utils", "_rebuild_tensor_v2" if typed else "_rebuild_tensor_v3")
    if cls is not None:
        code += e.name(cls.module, cls.name)
    e.code.append(code + op.MARK)
    _refer(e, record)
    record.add(part, len(e.code))
    code = (
        e.integers(part.shape) + e.integers(part.stride) + op.flag(part.requires_grad) + _hooks(e)
    )
    if not typed:
        code += e.name("torch", part.dtype)
    if part.conjugate or part.negative:
        code += op.EMPTY_DICT
        if part.conjugate:
            code += e.text("conj") + op.TRUE + op.SETITEM
        if part.negative:
            code += e.text("neg") + op.TRUE + op.SETITEM
    e.code += (b"", code + op.TUPLE)


def _part(e: Emitter, part: Part) -> None:
    """Any other part: a contiguous tensor with a storage of its own."""
    if not e.recall(part):
        _call(e, part, stored(part))
        e.code.append(op.REDUCE + e.remember(part))


# -- what wraps them ------------------------------------------------------------------------------


def _parameter(e: Emitter, value: ParameterValue) -> Inside | None:
    return None if e.recall(value) else _inside_parameter(e, value)


def _inside_parameter(e: Emitter, value: ParameterValue) -> Inside:
    e.begin(value)
    plain = value.state is None
    name = "_rebuild_parameter" if plain else "_rebuild_parameter_with_state"
    e.code.append(e.name("torch._utils", name) + op.MARK)
    yield value.data
    e.code.append(op.flag(value.requires_grad) + _hooks(e))
    if not plain:
        yield value.state
    e.made(value, op.TUPLE + op.REDUCE, undo=op.POP_MARK + op.POP)


def _wrapper(e: Emitter, value: WrapperSubclass) -> Inside | None:
    return None if e.recall(value) else _inside_wrapper(e, value)


def _inside_wrapper(e: Emitter, value: WrapperSubclass) -> Inside:
    """`_rebuild_from_type_v2(_rebuild_wrapper_subclass, class, arguments, state)`."""
    e.begin(value)
    cls = value.cls.module, value.cls.name
    e.code.append(
        e.name("torch._tensor", "_rebuild_from_type_v2")
        + op.MARK
        + e.name("torch._utils", "_rebuild_wrapper_subclass")
        + e.name(*cls)
        + op.MARK
        + e.name(*cls)
        + e.name("torch", value.dtype)
        + e.integers(value.shape)
        + e.integers(value.stride)
        + op.integer(value.storage_offset)
        + layout(e, TorchLayout(value.layout))
        + device(e, value.device)
        + op.flag(value.requires_grad)
        + op.TUPLE
    )
    yield value.state
    e.made(value, op.TUPLE + op.REDUCE, undo=op.POP_MARK + op.POP)


def _subclass(e: Emitter, value: TensorSubclass) -> Inside | None:
    return None if e.recall(value) else _inside_subclass(e, value)


def _inside_subclass(e: Emitter, value: TensorSubclass) -> Inside:
    """`_rebuild_from_type_v2(function, class, arguments, state)`, where a call makes the data."""
    e.begin(value)
    e.code.append(e.name("torch._tensor", "_rebuild_from_type_v2") + op.MARK)
    data = value.data
    if type(data) is TorchTensor:
        function, arguments = _call_of(data)
        yield from (function, value.cls, arguments)
    elif isinstance(data, Part):
        _call(e, value, data if type(data) is StoragePart else stored(data), value.cls)
    else:
        raise UnsupportedTensorError(
            f"the data of a tensor of a class of its own are a {type(data).__name__}"
        )
    yield value.state
    e.made(value, op.TUPLE + op.REDUCE, undo=op.POP_MARK + op.POP)


def _torch_tensor(e: Emitter, value: TorchTensor) -> Inside | None:
    return None if e.recall(value) else _inside_torch_tensor(e, value)


def _inside_torch_tensor(e: Emitter, value: TorchTensor) -> Inside:
    e.begin(value)
    yield from _call_of(value)
    e.made(value, op.REDUCE, undo=op.POP * 2)


def _call_of(value: TorchTensor) -> tuple[Name, tuple[Value, ...]]:
    if value.call is None:
        raise UnsupportedTensorError(f"nothing says how a {value.kind} tensor is made")
    return value.call


HANDLERS: dict[type, Handler] = {
    TypedStorage: _typed_storage,
    StoragePart: _strided,
    Part: _part,
    ParameterValue: _parameter,
    WrapperSubclass: _wrapper,
    TensorSubclass: _subclass,
    TorchTensor: _torch_tensor,
}
