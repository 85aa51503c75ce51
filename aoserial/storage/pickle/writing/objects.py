"""How objects are written: unknown ones, and those of Python, NumPy and torch. Torch-free."""

from __future__ import annotations

from collections.abc import Sequence

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
    Value,
)
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.emitter import Emitter, Handler, Inside
from aoserial.storage.pickle.writing.plain import binary

# -- unknown objects ------------------------------------------------------------------------------


def _object(e: Emitter, value: ObjectValue) -> Inside | None:
    return None if e.recall(value) else _inside_object(e, value)


def _inside_object(e: Emitter, value: ObjectValue) -> Inside:
    e.begin(value)
    code, undo, parts = _call_of(value)
    if undo == op.POP_MARK:
        e.code.append(op.MARK)
    yield from parts
    if not e.made(value, code, undo=undo):
        return
    # items, then pairs, then states, as Python's pickler orders them
    if value.items:
        yield from e.append(value.items)
    elif type(value.items) is list:
        # nothing was appended to it: without that it could be taken for the member of an enum
        e.code.append(op.MARK + op.APPENDS)
    yield from e.set(value.pairs)
    for state in value.states:
        yield state
        e.code.append(op.BUILD)


def _call_of(value: ObjectValue) -> tuple[bytes, bytes, Sequence[Value]]:
    """What makes an object, what drops its parts instead, and those parts."""
    function, arguments = value.function, value.arguments
    match value.kind:
        case "reduce":
            return op.REDUCE, op.POP * 2, (function, arguments)
        case "newobj":
            return op.NEWOBJ, op.POP * 2, (function, arguments)
        case "newobj_ex":
            return op.NEWOBJ_EX, op.POP * 3, (function, arguments, value.keywords)
        case "inst" | "obj":
            inst = value.kind == "inst" and type(function) is Name
            lines = op.on_lines(function.module, function.name) if inst else None
            # OBJ means the same
            if lines is None:
                return op.OBJ, op.POP_MARK, (function, *arguments)
            return op.INST + lines, op.POP_MARK, arguments
    raise UnsupportedTensorError(f"an object is made by {value.kind!r:.40}, which is no way")


def _partial(e: Emitter, value: Partial) -> Inside | None:
    return None if e.recall(value) else _inside_partial(e, value)


def _inside_partial(e: Emitter, value: Partial) -> Inside:
    e.begin(value)
    e.code.append(e.name("functools", "partial"))
    yield value.function
    if e.made(value, op.TUPLES[1] + op.REDUCE, undo=op.POP * 2):
        e.code.append(op.MARK)
        yield from (value.function, value.arguments, value.keywords, value.attributes)
        e.code.append(op.TUPLE + op.BUILD)


def _rebuilt(e: Emitter, value: Rebuilt) -> Inside | None:
    return None if e.recall(value) else _inside_rebuilt(e, value)


def _inside_rebuilt(e: Emitter, value: Rebuilt) -> Inside:
    e.begin(value)
    head = e.name("aoserial", "_rebuild") + op.MARK + e.text(value.type)
    e.code.append(head + op.integer(value.version))
    yield from value.arguments
    e.made(value, op.TUPLE + op.REDUCE, undo=op.POP_MARK + op.POP)


def _reference(e: Emitter, value: Reference) -> Inside | None:
    if e.recall(value):
        return None
    try:
        known = Storages(_not_here)(value.id)
    except AoserialError:
        known = True
    if known is not None:
        raise UnsupportedTensorError("this reference would be taken for one to a storage")
    return _inside_reference(e, value)


def _inside_reference(e: Emitter, value: Reference) -> Inside:
    e.begin(value)
    yield value.id
    e.made(value, op.BINPERSID, undo=op.POP)


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
