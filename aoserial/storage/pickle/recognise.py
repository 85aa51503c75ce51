"""Recognises what torch, Python and NumPy pickle: a call becomes the value it means. Torch-free.

What is not known is no error: it stays an `ObjectValue` that says all that the file says. What is
known but wrong, such as a tensor that reaches outside its storage, is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from aoserial.storage.pickle.builder import Builder
from aoserial.storage.pickle.context import Context
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.plain import PLAIN, STATEFUL, constant
from aoserial.storage.pickle.rebuild import NOTED, TORCH, note_call
from aoserial.storage.pickle.values import EnumValue, Name, ObjectValue, Reference, Value

# What a persistent id refers to; None when it is none that the container knows.
Resolver: TypeAlias = Callable[[Value], Value | None]

# Python 2's names, which protocols up to 2 use still (of CPython's `_compat_pickle`)
_MODULES = {
    "__builtin__": "builtins",
    "copy_reg": "copyreg",
    "exceptions": "builtins",
    "cPickle": "pickle",
    "UserDict": "collections",
    "UserList": "collections",
}
_NAMES = {
    ("__builtin__", "basestring"): ("builtins", "str"),
    ("__builtin__", "intern"): ("sys", "intern"),
    ("__builtin__", "long"): ("builtins", "int"),
    ("__builtin__", "reduce"): ("functools", "reduce"),
    ("__builtin__", "unichr"): ("builtins", "chr"),
    ("__builtin__", "unicode"): ("builtins", "str"),
    ("__builtin__", "xrange"): ("builtins", "range"),
}


def python3_name(module: str, name: str) -> Name:
    """A name, with those of Python 2 under their new ones."""
    return Name(*_NAMES.get((module, name), (_MODULES.get(module, module), name)))


class Recogniser(Builder):
    """A builder that knows the functions in `rebuild` (tensors) and `plain` (all else).

    Args:
        resolve: gives what a persistent id stands for.
        limits: budgets.
    """

    def __init__(self, resolve: Resolver, limits: Limits) -> None:
        self._resolve = resolve
        self._context = Context(limits)

    def name(self, module: str, name: str) -> Value:
        found = python3_name(module, name)
        return constant(found) or found

    def reference(self, id: Value) -> Value:  # noqa: A002 - pickle's own word
        found = self._resolve(id)
        return Reference(id) if found is None else found

    def call(self, kind: str, function: Value, arguments: Value, keywords: Value = None) -> Value:
        if type(function) is Name and type(arguments) is tuple and not keywords:
            known = KNOWN.get((function.module, function.name))
            if known is not None:
                found = known(self._context, arguments)
                if type(found) in NOTED:
                    note_call(found, function, arguments)
            elif kind == "reduce" and len(arguments) == 1 and type(arguments[0]) in _ENUM_TYPES:
                found = EnumValue(function, arguments[0])
            else:
                found = None
            if found is not None:
                return found
        return ObjectValue(kind, function, arguments, keywords)

    def set_state(self, target: Value, state: Value) -> Value:
        if type(target) is ObjectValue and type(target.function) is Name and not target.states:
            stateful = STATEFUL.get((target.function.module, target.function.name))
            if stateful is not None and not target.items and not target.pairs:
                found = stateful(target.arguments, state)
                if found is not None:
                    note_call(found, target.function, target.arguments)
                    return found
        return super().set_state(target, state)

    def notes(self) -> list[str]:
        """What was left out of the values, to be said at the end."""
        return self._context.notes()


KNOWN = {**PLAIN, **TORCH}

_ENUM_TYPES = frozenset({str, int})


# Makes the builder for a pickle: from what resolves its persistent ids, and the budgets
Builders: TypeAlias = Callable[[Resolver, Limits], Recogniser]
