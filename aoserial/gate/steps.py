"""The code of migration steps as digests, so that an edit after the release is noticed. Torch-free.

What counts is what a step does: its syntax tree without docstrings, and that of the functions of
its own module that it calls. Comments, layout and words may change.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from types import CodeType, FunctionType
from typing import Any

from aoserial.migrations import Step

# of nodes: what says nothing, or is there in some versions of Python only
_SILENT = frozenset({"ctx", "kind", "type_comment", "type_params", "decorator_list", "returns"})


def code_digest(step: Step) -> str:
    """SHA-256 of what a step's code does; empty where there is no source to look at."""
    texts = []
    for function in _with_called(inspect.unwrap(step.function)):
        source = _source(function)
        if source is None:
            return ""
        texts.append(source)
    return hashlib.sha256("\n".join(sorted(texts)).encode()).hexdigest()


def _with_called(function: Callable[..., Any]) -> Iterator[FunctionType]:
    """A function and those of its own module that it can reach."""
    waiting, seen = [function], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, FunctionType) or one in seen:
            continue
        seen.add(one)
        yield one
        for name in _names(one.__code__):
            called = one.__globals__.get(name)
            if isinstance(called, FunctionType) and called.__module__ == one.__module__:
                waiting.append(called)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


@cache
def _lines(path: str) -> tuple[str, ...]:
    with open(path, encoding="utf-8") as file:
        return tuple(file.read().splitlines())


def _source(function: FunctionType) -> str | None:
    """A function's syntax tree as text, alike in every version of Python."""
    code = function.__code__
    try:
        lines = _lines(code.co_filename)
    except OSError:
        return None
    last = max(_ends(code))
    text = textwrap.dedent("\n".join(lines[code.co_firstlineno - 1 : last]))
    try:
        tree = ast.parse(text)
    except SyntaxError:  # a lambda in the midst of an expression: its lines stand for it
        return text
    return _spell(tree.body[0])


def _ends(code: CodeType) -> Iterator[int]:
    """The lines on which the code of a function ends."""
    yield code.co_firstlineno
    for _, end, _, _ in code.co_positions():
        if end is not None:
            yield end
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _ends(constant)


def _spell(node: object) -> str:
    if isinstance(node, list):
        return f"[{','.join(map(_spell, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = []
    for name, value in ast.iter_fields(node):
        if name in _SILENT or value is None or value == []:
            continue
        if name == "body" and isinstance(value, list) and _is_docstring(value[0]):
            value = value[1:]  # noqa: PLW2901 - words
        fields.append(f"{name}={_spell(value)}")
    return f"{type(node).__name__}({','.join(fields)})"


def _is_docstring(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )
