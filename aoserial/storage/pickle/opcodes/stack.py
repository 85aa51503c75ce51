"""Opcodes for the stack, the memo and the framing of the stream. Torch-free."""

from __future__ import annotations

import re
import struct

from aoserial.errors import PickleError
from aoserial.storage.pickle.machine import Machine, TruncatedError

HIGHEST_PROTOCOL = 5

_UNSIGNED = struct.Struct("<I").unpack_from
_DIGITS = re.compile(rb"[0-9]{1,10}")


class Stopped(Exception):  # noqa: N818 - not an error: how the loop ends
    """STOP was met; the position after it."""


def _mark(m: Machine, at: int) -> int:
    m.below.append(m.stack)
    m.stack = []
    return at


def _pop(m: Machine, at: int) -> int:
    if m.stack:
        m.stack.pop()
    else:
        m.pop_mark()
    return at


def _pop_mark(m: Machine, at: int) -> int:
    m.pop_mark()
    return at


def _duplicate(m: Machine, at: int) -> int:
    m.stack.append(m.stack[-1])
    return at


# -- the memo -----------------------------------------------------------------------------------


def _put_byte(m: Machine, at: int) -> int:
    m.remember(m.data[at])
    return at + 1


def _put_long(m: Machine, at: int) -> int:
    m.remember(_UNSIGNED(m.data, at)[0])
    return at + 4


def _put_text(m: Machine, at: int) -> int:
    index, at = _index(m, at)
    m.remember(index)
    return at


def _memoize(m: Machine, at: int) -> int:
    m.remember(len(m.memo) + len(m.scattered))
    return at


def _get_byte(m: Machine, at: int) -> int:
    m.recall(m.data[at], at + 1)
    return at + 1


def _get_long(m: Machine, at: int) -> int:
    m.recall(_UNSIGNED(m.data, at)[0], at + 4)
    return at + 4


def _get_text(m: Machine, at: int) -> int:
    index, at = _index(m, at)
    m.recall(index, at)
    return at


def _index(m: Machine, at: int) -> tuple[int, int]:
    text, at = m.line(at)
    if not _DIGITS.fullmatch(text):
        raise PickleError(f"{text[:40]!r} is no memo index")
    return int(text), at


# -- framing ------------------------------------------------------------------------------------


def _protocol(m: Machine, at: int) -> int:
    if at != 1:
        raise PickleError("the protocol is given in the middle")
    if m.data[at] > HIGHEST_PROTOCOL:
        raise PickleError(f"its protocol is {m.data[at]}; {HIGHEST_PROTOCOL} is the highest known")
    return at + 1


def _frame(m: Machine, at: int) -> int:
    """Frames help readers of streams; here they are checked to fit, and mean nothing."""
    length = int.from_bytes(m.data[at : at + 8], "little")
    if length > m.size - (at + 8):
        raise TruncatedError(f"a frame of {length} bytes does not fit")
    return at + 8


def _stop(_: Machine, at: int) -> int:
    raise Stopped(at)


def _zero(m: Machine, at: int) -> int:
    if at > m.size:
        raise TruncatedError("its bytes end without STOP")
    raise PickleError(f"byte {at - 1} is 0x00, which is no opcode")


def _out_of_band(_: Machine, at: int) -> int:
    raise PickleError(f"at byte {at - 1} it wants a buffer that is not in the file")


OPCODES = {
    b"(": ("MARK", _mark),
    b"0": ("POP", _pop),
    b"1": ("POP_MARK", _pop_mark),
    b"2": ("DUP", _duplicate),
    b"p": ("PUT", _put_text),
    b"q": ("BINPUT", _put_byte),
    b"r": ("LONG_BINPUT", _put_long),
    b"\x94": ("MEMOIZE", _memoize),
    b"g": ("GET", _get_text),
    b"h": ("BINGET", _get_byte),
    b"j": ("LONG_BINGET", _get_long),
    b"\x80": ("PROTO", _protocol),
    b"\x95": ("FRAME", _frame),
    b".": ("STOP", _stop),
    b"\0": ("zero", _zero),
    b"\x97": ("NEXT_BUFFER", _out_of_band),
    b"\x98": ("READONLY_BUFFER", _out_of_band),
}
