"""Faults that only values show: codes out of range, scales that are not finite.

Headers cannot tell these, so they are looked for where every byte is read anyway. Part by part, so
that a check holds one part in memory.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from aoserial.errors import FieldError
from aoserial.record import Record

_E8M0_NAN = 255  # OCP MX 1.0, 5.4.1: the only code of a scale that is no power of two


def value_faults(record: Record) -> Iterator[FieldError]:
    """A fault for each part of a record whose values its type does not allow.

    Args:
        record: at the head of its type; parts are read one after the other.
    """
    for name, part in record.parts.items():
        reason = _fault(record, name, part.read())
        if reason:
            yield FieldError(reason).locate(field=name)


def _fault(record: Record, name: str, tensor: torch.Tensor) -> str:
    """What is wrong with one part, empty when nothing is."""
    if name.endswith(("scale", "scales")) and tensor.is_floating_point():
        return _not_finite(tensor)
    if record.type == "aoserial.MXTensor" and name == "scale":
        return _count(tensor == _E8M0_NAN, "are NaN (e8m0 code 255)")
    if name == "group_index":
        groups = record.parts["scale"].shape[-1]
        return _count((tensor < 0) | (tensor >= groups), f"name no group of {groups}")
    if record.type == "aoserial.IntxTensor" and name == "qdata":
        half = 1 << int(str(record.attributes["bit_width"])) - 1
        # against the largest code, since 128 itself wraps round in int8
        wrong = (tensor < -half) | (tensor > half - 1)
        return _count(wrong, f"are not from {-half} to {half - 1}")
    return ""


def _not_finite(tensor: torch.Tensor) -> str:
    # fp8 has no isfinite of its own; widening is exact
    wide = tensor.float() if tensor.itemsize == 1 else tensor
    return _count(~torch.isfinite(wide), "are infinite or NaN")


def _count(wrong: torch.Tensor, what: str) -> str:
    flat = wrong.reshape(-1)
    found = int(flat.sum())
    if not found:
        return ""
    return f"{found} of {flat.numel()} values {what}, the first at {int(flat.nonzero()[0])}"
