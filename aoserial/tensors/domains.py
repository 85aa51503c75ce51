"""Live enums of the affine and NVFP4 types. What their symbols mean is in `schema.builtin`."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

from aoserial.errors import OptionError
from aoserial.schema.builtin.domains import ZERO_DOMAIN
from aoserial.schema.builtin.nvfp4 import SCALE_OP
from aoserial.tensors.registration import bind

_Member = TypeVar("_Member", bound=Enum)


@bind(ZERO_DOMAIN)
class ZeroDomain(Enum):
    """What a zero point is subtracted from or added to; q is a code, mid the middle one."""

    none = "none"  # w = (q - mid) s
    int = "int"  # w = (q - z) s
    float = "float"  # w = (q - mid) s + z
    offset = "offset"  # w = q s + z


@bind(SCALE_OP)
class ScaleOp(Enum):
    """How the scale of a whole tensor enters, into those of blocks or into an activation."""

    multiply = "multiply"
    divide = "divide"


def member(enum: type[_Member], given: _Member | str, *, argument: str) -> _Member:
    """The member that an argument names, or is.

    Raises:
        OptionError: there is no such member.
    """
    try:
        return enum(given)
    except ValueError:
        names = ", ".join(map(repr, enum.__members__))
        raise OptionError(f"{argument} is {given!r}, expected one of {names}") from None
