"""How Python's own values are written. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.pickle.values import Key, StateDict, Value
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.emitter import Code, Emitter, Handler

# -- scalars --------------------------------------------------------------------------------------


def _none(e: Emitter, _: None) -> None:
    e.code.append(op.NONE)


def _bool(e: Emitter, value: bool) -> None:
    e.code.append(op.TRUE if value else op.FALSE)


def _int(e: Emitter, value: int) -> None:
    e.code.append(op.integer(value))


def _float(e: Emitter, value: float) -> None:
    e.code.append(op.number(value))


def _complex(e: Emitter, value: complex) -> None:
    numbers = op.number(value.real) + op.number(value.imag)
    e.code.append(e.name("builtins", "complex") + numbers + op.TUPLES[2] + op.REDUCE)


def _str(e: Emitter, value: str) -> None:
    e.code.append(e.text(value))


def _bytes(e: Emitter, value: bytes) -> None:
    if not e.recall(value):
        e.code.append(binary(e, value) + e.remember(value))


def binary(e: Emitter, data: bytes) -> bytes:
    """Bytes that nobody else has; before protocol 3 they are a text."""
    code = op.binary(data)
    if code is not None:
        return code
    function = e.name("_codecs", "encode")
    return function + op.text(data.decode("latin-1")) + e.text("latin1") + op.TUPLES[2] + op.REDUCE


def _bytearray(e: Emitter, value: bytearray) -> None:
    if not e.recall(value):
        function, code = e.name("builtins", "bytearray"), op.binary(value)
        if code is None:
            text = op.text(value.decode("latin-1"))
            arguments = text + e.text("latin-1") + op.TUPLES[2] if value else op.EMPTY_TUPLE
        else:
            arguments = code + op.TUPLES[1]
        e.code.append(function + arguments + op.REDUCE + e.remember(value))


# -- containers -----------------------------------------------------------------------------------


def _list(e: Emitter, value: list[Value]) -> None:
    if not e.recall(value):
        e.code.append(op.EMPTY_LIST + e.remember(value))
        e.append(value)


_INT = {int}


def _tuple(e: Emitter, value: tuple[Value, ...]) -> None:
    if not value:
        e.code.append(op.EMPTY_TUPLE)
    elif e.recall(value):
        pass
    elif set(map(type, value)) == _INT:
        e.code.append(e.integers(value) + e.remember(value))
    elif len(value) < len(op.TUPLES):
        e.make(value, value, op.TUPLES[len(value)], undo=op.POP * len(value))
    else:
        e.code.append(op.MARK)
        e.make(value, value, op.TUPLE, undo=op.POP_MARK)


def _dict(e: Emitter, value: dict[Value, Value]) -> None:
    if not e.recall(value):
        e.code.append(op.EMPTY_DICT + e.remember(value))
        e.set(list(value.items()))


def _state_dict(e: Emitter, value: StateDict) -> None:
    if not e.recall(value):
        made = e.name("collections", "OrderedDict") + op.EMPTY_TUPLE + op.REDUCE
        e.code.append(made + e.remember(value))
        if value.attributes is not None:
            e.then(value.attributes, Code(op.BUILD))
        e.set(list(value.items()))


def _set_by(cls: str) -> Handler:
    """Sets are made of a list, before protocol 4 which has opcodes for them."""

    def write(e: Emitter, value: set[Value] | frozenset[Value]) -> None:
        if not e.recall(value):
            e.code.append(e.name("builtins", cls) + op.EMPTY_LIST)
            e.make(value, (), op.TUPLES[1] + op.REDUCE, undo=op.POP * 2)
            e.append(_ordered(value))

    return write


def _ordered(members: Iterable[Value]) -> list[Value]:
    """The members of a set in an order that depends on nothing but them."""
    keys = [member for member in members if type(member) is Key]
    plain = [member for member in members if type(member) is not Key]
    plain.sort(key=lambda member: (type(member).__name__, repr(member)))
    return plain + sorted(keys, key=lambda key: key.number)


def _key(e: Emitter, value: Key) -> None:
    if type(value.value) is Key:
        raise UnsupportedTensorError("this is the key of a key, which stands for nothing")
    e.then(value.value)


HANDLERS: dict[type, Handler] = {
    type(None): _none,
    bool: _bool,
    int: _int,
    float: _float,
    complex: _complex,
    str: _str,
    bytes: _bytes,
    bytearray: _bytearray,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    StateDict: _state_dict,
    set: _set_by("set"),
    frozenset: _set_by("frozenset"),
    Key: _key,
}
