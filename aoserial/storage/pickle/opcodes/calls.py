"""Opcodes by which pickle would import, call or set something: the builder is asked. Torch-free."""

from __future__ import annotations

from collections.abc import Callable

from aoserial.errors import PickleError
from aoserial.storage.pickle.builder import kind_of
from aoserial.storage.pickle.machine import Machine
from aoserial.storage.pickle.opcodes.scalars import unicode_text
from aoserial.storage.pickle.values import SCALARS, ObjectValue, Value
from aoserial.storage.pickle.weights import FILLED, weight


def _global(m: Machine, at: int) -> int:
    start = at - 1
    module, at = m.line(at)
    name, at = m.line(at)
    m.stack.append(m.name(unicode_text(module), unicode_text(name), start))
    return at


def _stack_global(m: Machine, at: int) -> int:
    name, module = m.stack.pop(), m.stack.pop()
    if type(name) is not str or type(module) is not str:
        raise PickleError(
            f"a name is made of {kind_of(module)} and {kind_of(name)}, not of two texts"
        )
    m.stack.append(m.name(module, name, at - 1))
    return at


def _extension(width: int) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        code = int.from_bytes(m.data[at : at + width], "little", signed=width == 4)
        if code <= 0:
            m.check_whole(at + width)
            raise PickleError(f"{code} is no code of the extension registry")
        m.builder.at = at - 1
        m.make(m.builder.extension(code))
        return at + width

    return push


def _reduce(m: Machine, at: int) -> int:
    arguments = m.stack.pop()
    _make(m, at - 1, "reduce", m.stack.pop(), arguments)
    return at


def _new_object(m: Machine, at: int) -> int:
    arguments = m.stack.pop()
    _make(m, at - 1, "newobj", m.stack.pop(), arguments)
    return at


def _new_object_with_keywords(m: Machine, at: int) -> int:
    keywords, arguments = m.stack.pop(), m.stack.pop()
    if type(keywords) is not dict:
        raise PickleError(f"something is called with the keywords of {kind_of(keywords)}")
    _make(m, at - 1, "newobj_ex", m.stack.pop(), arguments, keywords=keywords)
    return at


def _instance(m: Machine, at: int) -> int:
    """INST: a class by name, and the arguments above the mark."""
    start = at - 1
    module, at = m.line(at)
    name, at = m.line(at)
    arguments = tuple(m.pop_mark())
    cls = m.name(unicode_text(module), unicode_text(name), start)
    _make(m, start, "inst", cls, arguments)
    return at


def _object(m: Machine, at: int) -> int:
    """OBJ: a class and its arguments, all of them above the mark."""
    above = m.pop_mark()
    _make(m, at - 1, "obj", above[0], tuple(above[1:]))
    return at


def _make(
    m: Machine, at: int, kind: str, function: Value, arguments: Value, *, keywords: Value = None
) -> None:
    if type(function) in SCALARS:
        raise PickleError(f"{kind_of(function)} is called")
    # What an unknown call makes may be a tuple: the class of a NamedTuple is called so.
    if type(arguments) is not tuple and not isinstance(arguments, _ARGUMENTS):
        raise PickleError(f"something is called with {kind_of(arguments)}, not with a tuple")
    m.builder.at = at
    value = m.builder.call(kind, function, arguments, keywords)
    m.made += weight(value) if type(value) in FILLED else 1
    if m.made > m.max_made:
        m.count(0)  # raises
    m.stack.append(value)


_ARGUMENTS = (tuple, ObjectValue)


def _build(m: Machine, at: int) -> int:
    state = m.stack.pop()
    target = m.stack[-1]
    m.builder.at = at - 1
    changed = m.builder.set_state(target, state)
    if changed is target:
        m.made += 1  # its state lies in a list
    else:
        m.count(weight(changed))
        m.replace(target, changed)
    return at


def _text_persistent(m: Machine, at: int) -> int:
    text, end = m.line(at)
    m.builder.at = at - 1
    m.make(m.builder.reference(unicode_text(text)))
    return end


def _persistent(m: Machine, at: int) -> int:
    m.builder.at = at - 1
    m.make(m.builder.reference(m.stack.pop()))
    return at


OPCODES = {
    b"c": ("GLOBAL", _global),
    b"\x93": ("STACK_GLOBAL", _stack_global),
    b"\x82": ("EXT1", _extension(1)),
    b"\x83": ("EXT2", _extension(2)),
    b"\x84": ("EXT4", _extension(4)),
    b"R": ("REDUCE", _reduce),
    b"\x81": ("NEWOBJ", _new_object),
    b"\x92": ("NEWOBJ_EX", _new_object_with_keywords),
    b"i": ("INST", _instance),
    b"o": ("OBJ", _object),
    b"b": ("BUILD", _build),
    b"P": ("PERSID", _text_persistent),
    b"Q": ("BINPERSID", _persistent),
}
