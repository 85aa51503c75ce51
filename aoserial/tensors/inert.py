"""`InertTensor`: a tensor that can be shown and saved again, and not computed with."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeAlias

import torch

from aoserial.errors import InertError, escape
from aoserial.record.record import Record
from aoserial.storage.dtypes import torch_dtype

_SHOWN = 6  # fields of each kind in a repr; a file may declare thousands
_WIDTH = 60  # characters of one value in a repr


class InertTensor:
    """A record whose type no class here stands for, or whose bytes no public arithmetic reads.

    It is no torch.Tensor. `record` has everything; saved again, it is byte-equal.
    """

    __slots__ = ("fingerprint", "pickled", "reason", "record")

    def __init__(
        self,
        record: Record,
        *,
        fingerprint: str | None = None,
        reason: str = "",
        pickled: Any = None,
    ) -> None:
        """Holds a record.

        Args:
            record: as stored.
            fingerprint: of the schema it was written with, None where the writer kept none.
            reason: a sentence on why it is inert; that its type is not known, unless given.
            pickled: the value it was in a pickle, as which it is saved to one again.
        """
        self.record = record
        self.fingerprint = fingerprint
        self.pickled = pickled
        self.reason = reason or f"no class is registered for {escape(record.type)}"

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.record.shape)

    @property
    def dtype(self) -> torch.dtype:
        return torch_dtype(self.record.dtype)

    def dequantize(self, dtype: torch.dtype | None = None) -> NoReturn:
        del dtype
        raise self._refusal("dequantized")

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> NoReturn:
        del types
        name = getattr(func, "__name__", str(func))
        for argument in (*args, *(kwargs or {}).values()):
            if isinstance(argument, InertTensor):
                raise argument._refusal(f"used in {name}")
        raise InertError(f"an inert tensor cannot be used in {name}")

    def _refusal(self, how: str) -> InertError:
        return InertError(f"{self!r} cannot be {how}: {self.reason}")

    def __repr__(self) -> str:
        record = self.record
        head = f"{_cut(record.type)}@{record.version} {_cut(record.dtype)}{list(record.shape)[:9]}"
        attributes = [
            f"{_cut(name)}={_cut(repr(value))}" for name, value in record.attributes.items()
        ]
        parts = [
            f"{_cut(name)}: {part.dtype}{list(part.shape)[:9]}"
            for name, part in record.parts.items()
        ]
        told = ", ".join(_few(attributes) + _few(parts))
        return f"<InertTensor {head} ({told})>"


# what a checkpoint gives for a name
Loaded: TypeAlias = torch.Tensor | InertTensor


def _refusing(name: str) -> Callable[..., NoReturn]:
    def operate(self: InertTensor, *_: object) -> NoReturn:
        raise self._refusal(f"used in {name}")

    return operate


# Python asks an operand itself before, or after, it asks torch
for _operator in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul"):
    setattr(InertTensor, f"__{_operator}__", _refusing(_operator))
    setattr(InertTensor, f"__r{_operator}__", _refusing(_operator))


def _cut(text: str) -> str:
    shown = escape(text)
    return shown if len(shown) <= _WIDTH else shown[: _WIDTH - 1] + "…"


def _few(items: list[str]) -> list[str]:
    more = len(items) - _SHOWN
    return items if more <= 0 else [*items[:_SHOWN], f"… {more} more"]
