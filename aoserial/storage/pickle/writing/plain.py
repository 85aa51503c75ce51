"""How Python's own values are written. Torch-free."""

from __future__ import annotations

from collections.abc import Iterable

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.pickle.values import Key, StateDict, Value
from aoserial.storage.pickle.writing import opcodes as op
from aoserial.storage.pickle.writing.emitter import Emitter, Handler, Inside

# -- scalars that are objects ---------------------------------------------------------------------


def _complex(e: Emitter, value: complex) -> None:
    numbers = op.number(value.real) + op.number(value.imag)
    e.code.append(e.name("builtins", "complex") + numbers + op.TUPLES[2] + op.REDUCE)


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


def _list(e: Emitter, value: list[Value]) -> Inside | None:
    if e.recall(value):
        return None
    e.code.append(op.EMPTY_LIST + e.remember(value))
    return e.append(value) if value else None


_INT = {int}


def _tuple(e: Emitter, value: tuple[Value, ...]) -> Inside | None:
    if not value:
        e.code.append(op.EMPTY_TUPLE)
    elif e.recall(value):
        pass
    elif set(map(type, value)) == _INT:
        e.code.append(e.integers(value) + e.remember(value))
    else:
        return _inside_tuple(e, value)
    return None


def _inside_tuple(e: Emitter, value: tuple[Value, ...]) -> Inside:
    e.begin(value)
    if len(value) < len(op.TUPLES):
        yield from value
        e.made(value, op.TUPLES[len(value)], undo=op.POP * len(value))
    else:
        e.code.append(op.MARK)
        yield from value
        e.made(value, op.TUPLE, undo=op.POP_MARK)


def _dict(e: Emitter, value: dict[Value, Value]) -> Inside | None:
    if e.recall(value):
        return None
    e.code.append(op.EMPTY_DICT + e.remember(value))
    return e.set(list(value.items())) if value else None


def _state_dict(e: Emitter, value: StateDict) -> Inside | None:
    return None if e.recall(value) else _inside_state_dict(e, value)


def _inside_state_dict(e: Emitter, value: StateDict) -> Inside:
    made = e.name("collections", "OrderedDict") + op.EMPTY_TUPLE + op.REDUCE
    e.code.append(made + e.remember(value))
    yield from e.set(list(value.items()))
    if value.attributes is not None:
        yield value.attributes
        e.code.append(op.BUILD)


def _set(e: Emitter, value: set[Value]) -> Inside | None:
    return None if e.recall(value) else _members(e, "set", value)


def _frozen_set(e: Emitter, value: frozenset[Value]) -> Inside | None:
    return None if e.recall(value) else _members(e, "frozenset", value)


def _members(e: Emitter, cls: str, value: set[Value] | frozenset[Value]) -> Inside:
    """Sets are made of a list, before protocol 4 which has opcodes for them."""
    e.begin(value)
    e.code.append(e.name("builtins", cls) + op.EMPTY_LIST)
    yield from e.append(_ordered(value))
    e.made(value, op.TUPLES[1] + op.REDUCE, undo=op.POP * 2)


def _ordered(members: Iterable[Value]) -> list[Value]:
    """The members of a set in an order that depends on nothing but them."""
    keys = [member for member in members if type(member) is Key]
    plain = [member for member in members if type(member) is not Key]
    plain.sort(key=lambda member: (type(member).__name__, repr(member)))
    return plain + sorted(keys, key=lambda key: key.number)


def _key(_: Emitter, value: Key) -> Inside:
    if type(value.value) is Key:
        raise UnsupportedTensorError("this is the key of a key, which stands for nothing")
    return iter((value.value,))


HANDLERS: dict[type, Handler] = {
    complex: _complex,
    bytes: _bytes,
    bytearray: _bytearray,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    StateDict: _state_dict,
    set: _set,
    frozenset: _frozen_set,
    Key: _key,
}
