"""What the checks are written with: they raise `AssertionError` and say in words what is wrong.

They need no pytest, which rewrites `assert` in test modules alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from aoserial.errors import AoserialError
from aoserial.tensors import VersionedTensor


def expect(condition: object, sentence: str) -> None:
    """Raises unless the condition holds; the sentence says what should."""
    if not condition:
        raise AssertionError(f"expected: {sentence}")


def own(tensor: object) -> VersionedTensor:
    """The tensor, which has to be a quantized one."""
    if not isinstance(tensor, VersionedTensor):
        raise AssertionError(f"expected: a VersionedTensor, not {tensor!r}")
    return tensor


def expect_equal(found: object, expected: torch.Tensor, what: str) -> None:
    """Raises unless two plain tensors agree in dtype, shape and every byte."""
    if not isinstance(found, torch.Tensor) or isinstance(found, VersionedTensor):
        raise AssertionError(f"{what}: expected a plain tensor, found {found!r}")
    if same_bytes(found, expected):
        return
    if (found.dtype, found.shape) == (expected.dtype, expected.shape):
        wrong = int((as_bytes(found) != as_bytes(expected)).sum())
        raise AssertionError(f"{what}: {wrong} bytes of {found.nbytes} differ")
    raise AssertionError(
        f"{what}: found {found.dtype}{list(found.shape)}, expected "
        f"{expected.dtype}{list(expected.shape)}"
    )


def expect_same(found: object, expected: object, what: str) -> None:
    """Raises unless two quantized tensors agree in type, metadata and every byte of every part."""
    found = own(found)
    if not found._same_metadata(expected):
        raise AssertionError(f"{what} differs in its metadata: {found!r}, expected {expected!r}")
    for name in found.part_names():
        expect_equal(getattr(found, name), getattr(expected, name), f"part {name!r} of {what}")


def same_bytes(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two plain tensors agree in dtype, shape and every bit (NaN payloads and -0.0 too)."""
    alike = (left.dtype, left.shape) == (right.dtype, right.shape)
    return alike and torch.equal(as_bytes(left), as_bytes(right))


def as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """uint8 [nbytes], of a plain tensor."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


@contextmanager
def refused(
    *kinds: type[Exception], because: str = "", why: str = "that cannot be right"
) -> Iterator[None]:
    """Raises unless the block raises one of these errors.

    Args:
        kinds: an error of aoserial unless given: a clear sentence, and not something from within.
        because: what its message has to contain.
        why: what the block does, for the case that nothing is raised.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, kinds or (AoserialError,)):
            raise AssertionError(f"{why}: raised {error!r}") from error
        expect(because in str(error), f"an error that says {because!r}, not {error}")
    else:
        raise AssertionError(f"{why}, but nothing was raised")


@contextmanager
def quiet() -> Iterator[None]:
    """Ignores the warnings that torch's own modules raise about themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        warnings.simplefilter("ignore", FutureWarning)
        yield
