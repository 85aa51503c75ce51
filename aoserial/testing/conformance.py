"""The suite as one class, and a function that runs a single check of it."""

from __future__ import annotations

from collections.abc import Callable

import torch

from aoserial.errors import OptionError
from aoserial.testing.compiling import Compiling
from aoserial.testing.computing import Computing
from aoserial.testing.copies import Copies
from aoserial.testing.modules import Modules
from aoserial.testing.records import Records
from aoserial.testing.slices import Slices, Stacks


class Conformance(Computing, Modules, Copies, Slices, Stacks, Compiling, Records):
    """What every quantized tensor class does as a weight in torch, whatever its type.

    Derive from it, in a file that pytest collects:

        class TestInt4(aoserial.testing.Conformance):
            def make(self):
                return Int4Tensor.from_float(torch.randn(8, 64), group_size=32)

    `make` gives a small tensor, [..., N, K] with two blocks or more along some dimension, and at
    each call other values: checks compare what two tensors become. Each check stands alone; none
    needs an accelerator or the network. What a class does not support, the suite wants refused,
    with an error of aoserial's that says so: there are no checks to switch off.
    """


def checks() -> list[str]:
    """The names of the checks: sentences, with underscores."""
    prefix = "test_"
    return [name.removeprefix(prefix) for name in dir(Conformance) if name.startswith(prefix)]


def check(name: str, make: Callable[[], torch.Tensor]) -> None:
    """Runs one check without pytest.

    Args:
        name: as `checks` lists it.
        make: as `Conformance.make`.

    Raises:
        AssertionError: the class does not do what the name says.
        OptionError: there is no such check.
    """
    if name not in checks():
        raise OptionError(f"there is no check {name!r}; the checks are {', '.join(checks())}")
    suite = Conformance()
    suite.make = make  # type: ignore[method-assign]
    getattr(suite, f"test_{name}")()
