"""The source of the pickle package itself: nothing there could act on a file's word."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import aoserial.storage.pickle

PACKAGE = Path(aoserial.storage.pickle.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))

# Ways to run, import, look up or set something by a name that is data
BANNED_NAMES = {
    "eval",
    "exec",
    "compile",
    "__import__",
    "getattr",
    "setattr",
    "delattr",
    "globals",
    "locals",
    "vars",
    "open",
    "input",
    "breakpoint",
    "hash",
}
BANNED_MODULES = {
    "importlib",
    "pickle",
    "_pickle",
    "pickletools",
    "marshal",
    "copyreg",
    "ctypes",
    "builtins",
    "operator",
    "inspect",
    "pkgutil",
    "runpy",
    "subprocess",
    "zipfile",
    "tarfile",
    "shutil",
    "sys",
}

# `getattr(torch, name)`, after `name` was found in a table of ours; budgets by our own names
ALLOWED = {("dtypes.py", "getattr"), ("limits.py", "getattr")}

# What a value of the stack, or one made of it, is called in these modules
STACK_VALUES = {
    "m.stack",
    "stack",
    "above",
    "function",
    "arguments",
    "keywords",
    "target",
    "state",
    "items",
    "pairs",
    "item",
    "value",
    "root",
    "cls",
}
INTERPRETER = [path for path in MODULES if path.parent.name == "opcodes"] + [
    PACKAGE / name for name in ("machine.py", "interpreter.py", "builder.py", "recognise.py")
]


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def test_the_package_was_found():
    assert len(MODULES) > 15


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_nothing_that_acts_by_name_is_used(path):
    used = {node.id for node in ast.walk(parsed(path)) if isinstance(node, ast.Name)}
    assert {name for name in used & BANNED_NAMES if (path.name, name) not in ALLOWED} == set()


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_no_module_that_could_act_is_imported(path):
    imported = set()
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            imported |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").split(".")[0])
    assert imported & BANNED_MODULES == set()
    ours = {name for name in imported if name == "aoserial"}
    standard = {"__future__", "abc", "codecs", "collections", "contextlib", "dataclasses", "enum"}
    standard |= {"functools", "itertools", "math", "os", "re", "struct", "types", "typing", "zlib"}
    assert imported <= ours | standard | {"torch"}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_only_errors_and_storage_are_imported_of_this_library(path):
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aoserial"):
            assert node.module == "aoserial.errors" or node.module.startswith("aoserial.storage")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.name)
def test_torch_is_imported_inside_functions_only(path):
    tree = parsed(path)
    allowed = [node for node in tree.body if isinstance(node, ast.If)]  # TYPE_CHECKING
    top = [node for node in tree.body if node not in allowed]
    for node in top:
        if isinstance(node, ast.Import | ast.ImportFrom):
            assert "torch" not in {alias.name for alias in node.names}


@pytest.mark.parametrize("path", INTERPRETER, ids=lambda path: path.name)
def test_no_value_of_the_stack_is_called(path):
    for node in ast.walk(parsed(path)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        assert called not in STACK_VALUES, f"line {node.lineno}: {called}()"
        # nor one taken out of a list or made by another call on the spot: handlers[…] is ours
        assert not isinstance(node.func, ast.Call), f"line {node.lineno}: {called}()"
        if isinstance(node.func, ast.Subscript):
            assert called.split("[")[0] in {"handlers", "PLAIN"}, f"line {node.lineno}: {called}()"


@pytest.mark.parametrize("path", INTERPRETER, ids=lambda path: path.name)
def test_attributes_are_set_on_our_own_objects_only(path):
    for node in ast.walk(parsed(path)):
        for target in getattr(node, "targets", [getattr(node, "target", None)]):
            if isinstance(target, ast.Attribute):
                owner = ast.unparse(target.value)
                assert owner in {"self", "m", "m.builder", "self.builder", "target", "error"}
