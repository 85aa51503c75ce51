"""Golden cases: functions that make what a project wants to stay readable. Torch-free."""

from __future__ import annotations

import importlib.util
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, overload

from aoserial.errors import MissingFileError, SchemaError

Function = TypeVar("Function", bound=Callable[[], Any])

_MARK = "__aoserial_golden_case__"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,99}", re.ASCII)  # it becomes the name of a folder
FORMATS = ("safetensors", "pt")


@dataclass(frozen=True, kw_only=True)
class GoldenCase:
    """One case.

    Attributes:
        name: of the function that makes it.
        make: gives a small `nn.Module`, or a dict name → tensor. Called after
            `torch.manual_seed(0)`.
        inputs: gives a tensor or a tuple of tensors that the case is run with; None for a case
            that is only dequantized.
        run: gives the output, a tensor or a tuple or dict of tensors: `run(module, *inputs)` or
            `run(state, *inputs)`. A module is called unless there is one.
        formats: of the files: `safetensors`, `pt`.
        rounds: type and version (`"acme.Int4Tensor@1"`) → how far values and outputs of goldens
            that hold it may be from what they were, where a migration has to round. 0 is bit for
            bit, which everything is that is not listed.
        retired: no code writes it any more; its goldens stay, and are read.
    """

    name: str
    make: Callable[[], Any]
    inputs: Callable[[], Any] | None = None
    run: Callable[..., Any] | None = None
    formats: tuple[str, ...] = ("safetensors",)
    rounds: Mapping[str, float] = field(default_factory=dict)
    retired: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise SchemaError(f"{self.name!r} cannot name a golden case, as it names a folder")
        if not self.formats or not set(self.formats) <= set(FORMATS):
            raise SchemaError(
                f"golden case {self.name}: formats {self.formats} are not of {', '.join(FORMATS)}"
            )


@overload
def golden_case(function: Function, /) -> Function: ...
@overload
def golden_case(
    *,
    name: str | None = None,
    inputs: Callable[[], Any] | None = None,
    run: Callable[..., Any] | None = None,
    formats: tuple[str, ...] = ("safetensors",),
    rounds: Mapping[str, float] | None = None,
    retired: bool = False,
) -> Callable[[Function], Function]: ...


def golden_case(function: Any = None, /, **options: Any) -> Any:
    """Declares the decorated function as a golden case, with or without options.

    The options are the attributes of `GoldenCase`.

    Raises:
        SchemaError: a name that cannot be a folder's, or a format that is none.

    Example:
        >>> from aoserial.golden import golden_case
        >>> @golden_case
        ... def int8_rows():
        ...     return {"m.weight": aoserial.Int8Tensor.from_float(torch.randn(8, 16))}
    """

    def mark(made: Function) -> Function:
        name = options.pop("name", None) or made.__name__
        options["rounds"] = dict(options.get("rounds") or {})
        setattr(made, _MARK, GoldenCase(name=name, make=made, **options))
        return made

    return mark if function is None else mark(function)


def cases_of(namespace: Mapping[str, object]) -> dict[str, GoldenCase]:
    """The cases that a module declares, by name, in its order.

    Raises:
        SchemaError: two of one name.
    """
    found: dict[str, GoldenCase] = {}
    for value in namespace.values():
        case = getattr(value, _MARK, None) if callable(value) else None
        if not isinstance(case, GoldenCase):
            continue
        if found.setdefault(case.name, case) is not case:
            raise SchemaError(f"two golden cases are called {case.name}")
    return found


def load_cases(path: Path, *, root: Path | None = None) -> dict[str, GoldenCase]:
    """The cases of a Python file, which is run for that.

    Args:
        root: a folder to import the project's own modules from, beside that of the file.

    Raises:
        MissingFileError: no such file.
        SchemaError: it declares no case.
    """
    if not path.is_file():
        raise MissingFileError(f"{path}: there is no such file of golden cases")
    for folder in (path.parent, root):
        if folder is not None and str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location(f"aoserial_golden_{path.stem}", path)
    assert spec is not None  # of any path that ends in .py
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    found = cases_of(vars(module))
    if not found:
        raise SchemaError(f"{path} declares no golden case: decorate a function with golden_case")
    return found
