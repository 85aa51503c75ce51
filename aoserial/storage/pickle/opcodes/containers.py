"""Opcodes that make tuples, lists, dicts and sets, and that put things into them. Torch-free."""

from __future__ import annotations

from aoserial.errors import PickleError
from aoserial.storage.pickle.builder import keys
from aoserial.storage.pickle.machine import Machine
from aoserial.storage.pickle.values import Key, Value


def _empty_tuple(m: Machine, at: int) -> int:
    m.stack.append(())
    return at


def _tuple1(m: Machine, at: int) -> int:
    m.make((m.stack.pop(),))
    return at


# TUPLE2 and TUPLE make most of what is in a pickle: `make` and `pop_mark` are written out in them


def _tuple2(m: Machine, at: int) -> int:
    stack = m.stack
    second = stack.pop()
    stack[-1] = stack[-1], second
    m.made += 1
    return at


def _tuple3(m: Machine, at: int) -> int:
    third, second = m.stack.pop(), m.stack.pop()
    m.make((m.stack.pop(), second, third))
    return at


def _tuple(m: Machine, at: int) -> int:
    items = m.stack
    m.stack = stack = m.below.pop()
    stack.append(tuple(items))
    m.made += 1
    return at


def _empty_list(m: Machine, at: int) -> int:
    m.make([])
    return at


def _list(m: Machine, at: int) -> int:
    m.make(m.pop_mark())
    return at


def _empty_dict(m: Machine, at: int) -> int:
    m.make({})
    return at


def _dict(m: Machine, at: int) -> int:
    pairs = _paired(m.pop_mark())
    m.count(len(pairs) // 4)
    m.make(dict(zip(_keys(m, pairs[::2]), pairs[1::2], strict=True)))
    return at


def _empty_set(m: Machine, at: int) -> int:
    m.make(set())
    m.made += 1  # an empty set is twice an empty list
    return at


def _frozen_set(m: Machine, at: int) -> int:
    items = m.pop_mark()
    m.count(1 + len(items))
    m.make(frozenset(_keys(m, items)))
    return at


# -- putting things into them -------------------------------------------------------------------


def _append(m: Machine, at: int) -> int:
    item = m.stack.pop()
    _extend(m, [item])
    return at


def _appends(m: Machine, at: int) -> int:
    _extend(m, m.pop_mark())
    return at


def _extend(m: Machine, items: list[Value]) -> None:
    target = m.stack[-1]
    if type(target) is list:
        target.extend(items)
    else:
        _put_back(m, target, m.builder.add_items(target, items))


def _add_items(m: Machine, at: int) -> int:
    items = m.pop_mark()
    target = m.stack[-1]
    if type(target) is set:
        m.count(len(items))
        target.update(_keys(m, items))
    else:
        _put_back(m, target, m.builder.add_items(target, items))
    return at


def _set_item(m: Machine, at: int) -> int:
    value, key = m.stack.pop(), m.stack.pop()
    _set(m, [key, value])
    return at


def _set_items(m: Machine, at: int) -> int:
    _set(m, _paired(m.pop_mark()))
    return at


def _set(m: Machine, pairs: list[Value]) -> None:
    target = m.stack[-1]
    if type(target) is dict:
        m.count(1 + len(pairs) // 4)  # an entry takes up to 50 bytes, the first one more
        target.update(zip(_keys(m, pairs[::2]), pairs[1::2], strict=True))
    else:
        m.count(1 + len(pairs))  # an entry of an OrderedDict takes up to 170 bytes
        _put_back(m, target, m.builder.set_pairs(target, pairs))


def _keys(m: Machine, items: list[Value]) -> list[Value]:
    """`keys`, with each one counted that is wrapped."""
    found = keys(items)
    if found is not items:
        m.count(sum(type(key) is Key for key in found))
    return found


def _paired(items: list[Value]) -> list[Value]:
    if len(items) % 2:
        raise PickleError("a key has no value")
    return items


def _put_back(m: Machine, target: Value, changed: Value) -> None:
    m.made += 1  # an object has a list of them
    if changed is not target:
        m.made += 1  # what seemed to be an enum's member is an object
        m.replace(target, changed)


OPCODES = {
    b")": ("EMPTY_TUPLE", _empty_tuple),
    b"\x85": ("TUPLE1", _tuple1),
    b"\x86": ("TUPLE2", _tuple2),
    b"\x87": ("TUPLE3", _tuple3),
    b"t": ("TUPLE", _tuple),
    b"]": ("EMPTY_LIST", _empty_list),
    b"l": ("LIST", _list),
    b"a": ("APPEND", _append),
    b"e": ("APPENDS", _appends),
    b"}": ("EMPTY_DICT", _empty_dict),
    b"d": ("DICT", _dict),
    b"s": ("SETITEM", _set_item),
    b"u": ("SETITEMS", _set_items),
    b"\x8f": ("EMPTY_SET", _empty_set),
    b"\x90": ("ADDITEMS", _add_items),
    b"\x91": ("FROZENSET", _frozen_set),
}
