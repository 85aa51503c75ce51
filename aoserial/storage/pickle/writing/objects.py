"""How objects are written: unknown ones, and those of Python, NumPy and torch. Torch-free."""

from __future__ import annotations

from aoserial.errors import AoserialError, UnsupportedTensorError
from aoserial.storage.pickle.dtypes import ITEMSIZES, NUMPY_DTYPES
from aoserial.storage.pickle.plain import NumpyDtype
from aoserial.storage.pickle.references import Storages
from aoserial.storage.pickle.storages import StorageRef
from aoserial.storage.pickle.tensors import ArrayPart
from aoserial.storage.pickle.values import (
    EnumValue,
    ExtensionCode,
    Name,
    ObjectValue,
    Partial,
    Rebuilt,
    Reference,
    TorchDevice,
    TorchDtype,
    TorchLayout,
    TorchSize,
)
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.emitter import Code, Emitter, Handler
from aoserial.storage.pickle.writing.plain import binary

# -- unknown objects ------------------------------------------------------------------------------

_CALLS = {"reduce": op.REDUCE, "newobj": op.NEWOBJ}


def _object(e: Emitter, value: ObjectValue) -> None:
    if e.recall(value):
        return
    parts = [value.function, value.arguments]
    code = _CALLS.get(value.kind)
    if code is not None:
        e.make(value, parts, code, undo=op.POP * 2, fill=_fill)
    elif value.kind == "newobj_ex":
        keywords = Code(op.EMPTY_DICT) if value.keywords is None else value.keywords
        e.make(value, [*parts, keywords], op.NEWOBJ_EX, undo=op.POP * 3, fill=_fill)
    elif value.kind in {"inst", "obj"}:
        e.code.append(op.MARK)
        lines = _lines(value)
        if lines is None:
            parts = [value.function, *value.arguments]
            e.make(value, parts, op.OBJ, undo=op.POP_MARK, fill=_fill)
        else:
            e.make(value, value.arguments, op.INST + lines, undo=op.POP_MARK, fill=_fill)
    else:
        raise UnsupportedTensorError(f"an object is made by {value.kind!r:.40}, which is no way")


def _lines(value: ObjectValue) -> bytes | None:
    """The class as INST has it; None when it takes OBJ, which means the same."""
    function = value.function
    if value.kind != "inst" or type(function) is not Name:
        return None
    return op.on_lines(function.module, function.name)


def _fill(e: Emitter, value: ObjectValue) -> None:
    """Items, then pairs, then states, as Python's pickler orders them."""
    for state in reversed(value.states):
        e.then(state, Code(op.BUILD))
    if value.pairs:
        e.set(value.pairs)
    if value.items:
        e.append(value.items)
    elif type(value.items) is list:
        # it was appended to, by nothing: without that it could be taken for the member of an enum
        e.then(Code(op.MARK + op.APPENDS))


def _partial(e: Emitter, value: Partial) -> None:
    if not e.recall(value):
        e.code.append(e.name("functools", "partial"))
        code = op.TUPLES[1] + op.REDUCE
        e.make(value, (value.function,), code, undo=op.POP * 2, fill=_fill_partial)


def _fill_partial(e: Emitter, value: Partial) -> None:
    state = (value.function, value.arguments, value.keywords, value.attributes)
    e.then(Code(op.MARK), *state, Code(op.TUPLE + op.BUILD))


def _rebuilt(e: Emitter, value: Rebuilt) -> None:
    if not e.recall(value):
        e.code.append(e.name("aoserial", "_rebuild") + op.MARK)
        parts = (value.type, value.version, *value.arguments)
        e.make(value, parts, op.TUPLE + op.REDUCE, undo=op.POP_MARK + op.POP)


def _reference(e: Emitter, value: Reference) -> None:
    if e.recall(value):
        return
    try:
        known = Storages(_not_here)(value.id)
    except AoserialError:
        known = True
    if known is not None:
        raise UnsupportedTensorError("this reference would be taken for one to a storage")
    e.make(value, (value.id,), op.BINPERSID, undo=op.POP)


def _not_here(key: str, dtype: str, count: int) -> StorageRef:
    raise UnsupportedTensorError(f"storage {key}, {count} elements of {dtype}")


# -- what is never changed ------------------------------------------------------------------------


def _name(e: Emitter, value: Name) -> None:
    e.code.append(e.name(value.module, value.name))


def _enum(e: Emitter, value: EnumValue) -> None:
    if not e.recall(value):
        cls = e.name(value.cls.module, value.cls.name)
        inside = value.value
        code = e.text(inside) if isinstance(inside, str) else op.integer(inside)
        e.code.append(cls + code + op.TUPLES[1] + op.REDUCE + e.remember(value))


def _extension(e: Emitter, value: ExtensionCode) -> None:
    e.code.append(op.extension(value.code))


def _dtype(e: Emitter, value: TorchDtype) -> None:
    e.code.append(e.name("torch", value.name))


def _layout(e: Emitter, value: TorchLayout) -> None:
    e.code.append(layout(e, value))


def layout(e: Emitter, value: TorchLayout) -> bytes:
    """`torch.serialization._get_layout("torch.strided")`."""
    return e.constant(
        value,
        lambda: (
            e.name("torch.serialization", "_get_layout")
            + e.text(f"torch.{value.name}")
            + op.TUPLES[1]
            + op.REDUCE
        ),
    )


def _device(e: Emitter, value: TorchDevice) -> None:
    e.code.append(device(e, value))


def device(e: Emitter, value: TorchDevice) -> bytes:
    """`torch.device("cuda", 1)`."""

    def make() -> bytes:
        function, kind = e.name("torch", "device"), e.text(value.type)
        if value.index is None:
            return function + kind + op.TUPLES[1] + op.REDUCE
        return function + kind + op.integer(value.index) + op.TUPLES[2] + op.REDUCE

    return e.constant(value, make)


def _size(e: Emitter, value: TorchSize) -> None:
    if not e.recall(value):
        sizes = e.integers(tuple(value)) + op.TUPLES[1]
        e.code.append(e.name("torch", "Size") + sizes + op.REDUCE + e.remember(value))


# -- NumPy ----------------------------------------------------------------------------------------

_NUMPY_CODES = {dtype: code for code, dtype in NUMPY_DTYPES.items()}


def _array(e: Emitter, value: ArrayPart) -> None:
    """`_reconstruct(ndarray, (0,), b"b")` and its state: version, shape, dtype, order, bytes."""
    if e.recall(value):
        return
    code = _NUMPY_CODES[value.dtype]
    order = "<" if ITEMSIZES[value.dtype] > 1 else "|"
    e.code += (
        e.name(f"{value.core}.multiarray", "_reconstruct"),
        e.name("numpy", "ndarray"),
        op.integers((0,)),
        binary(e, b"b"),
        op.TUPLES[3] + op.REDUCE,
        op.MARK + op.integer(1),
        e.integers(value.shape),
        _numpy_dtype(e, order + code),
        op.TRUE if value.fortran else op.FALSE,
        binary(e, value.data),
        op.TUPLE + op.BUILD,
        e.remember(value),
    )


def _numpy_dtype(e: Emitter, kind: str) -> bytes:
    """`dtype("f4", False, True)` and its state: version, order, and what plain ones do not have."""

    def make() -> bytes:
        made = e.text(kind[1:]) + op.FALSE + op.TRUE + op.TUPLES[3] + op.REDUCE
        plain = op.NONE * 3 + op.integer(-1) * 2 + op.integer(0)
        state = op.MARK + op.integer(3) + e.text(kind[0]) + plain + op.TUPLE
        return e.name("numpy", "dtype") + made + state + op.BUILD

    return e.constant(NumpyDtype(kind), make)


def _numpy_dtype_by_itself(e: Emitter, value: NumpyDtype) -> None:
    e.code.append(_numpy_dtype(e, value))


HANDLERS: dict[type, Handler] = {
    ObjectValue: _object,
    Partial: _partial,
    Rebuilt: _rebuilt,
    Reference: _reference,
    Name: _name,
    EnumValue: _enum,
    ExtensionCode: _extension,
    TorchDtype: _dtype,
    TorchLayout: _layout,
    TorchDevice: _device,
    TorchSize: _size,
    ArrayPart: _array,
    NumpyDtype: _numpy_dtype_by_itself,
}
