"""Opcodes that push numbers, text and bytes. Torch-free."""

from __future__ import annotations

import codecs
import re
import struct
from collections.abc import Callable

from aoserial.errors import PickleError
from aoserial.storage.pickle.machine import Machine

_UNSIGNED = struct.Struct("<I").unpack_from
_INTEGER = re.compile(rb"[+-]?[0-9]{1,400}")
_FLOAT = re.compile(rb"[+-]?(?:inf|nan|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")
_ESCAPE = re.compile(rb"\\(?:x([0-9a-fA-F]{2})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"a": b"\a", b"b": b"\b", b"f": b"\f"}


def _constant(value: bool | None) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        m.stack.append(value)
        return at

    return push


def _byte(m: Machine, at: int) -> int:
    m.stack.append(m.data[at])
    return at + 1


def _number(code: str) -> Callable[[Machine, int], int]:
    """A number of fixed width, by its struct code."""
    form = struct.Struct(code)
    width, unpack_from = form.size, form.unpack_from

    def push(m: Machine, at: int) -> int:
        m.stack.append(unpack_from(m.data, at)[0])
        return at + width

    return push


def _long(width: int) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        data, at = m.sized(at, width)
        m.limits.check("integer_bits", 8 * len(data))
        m.stack.append(int.from_bytes(data, "little", signed=True))
        return at

    return push


def _text_integer(m: Machine, at: int) -> int:
    """INT and LONG; protocol 0 writes True and False as the integers 01 and 00."""
    text, at = m.line(at)
    if text in {b"00", b"01"}:
        m.stack.append(text == b"01")
        return at
    text = text.removesuffix(b"L")
    if not _INTEGER.fullmatch(text):
        raise PickleError(f"{text[:40]!r} is no integer of a sensible length")
    value = int(text)
    m.limits.check("integer_bits", value.bit_length())
    m.stack.append(value)
    return at


def _text_float(m: Machine, at: int) -> int:
    text, at = m.line(at)
    if len(text) > 1000 or not _FLOAT.fullmatch(text):
        raise PickleError(f"{text[:40]!r} is no float")
    m.stack.append(float(text))
    return at


# -- text and bytes -----------------------------------------------------------------------------


def unicode_text(data: bytes) -> str:
    """Text of the file, UTF-8 as pickle has it; `PickleError` when it is not."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        pass  # the usual way is the faster one
    try:
        return data.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError as error:
        raise PickleError(f"a text is not UTF-8: {error.reason}") from None


def _native(data: bytes) -> str | bytes:
    """A str of Python 2, which may have meant text or bytes: text if it is UTF-8."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _sized_text(width: int) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        data, at = m.sized(at, width)
        if len(data) > 255:
            m.limits.check("text_bytes", len(data))
        m.stack.append(unicode_text(data))
        return at

    return push


def _text(m: Machine, at: int) -> int:
    """BINUNICODE, as `_sized_text`: up to protocol 3 every text is one, nearly all are short."""
    start = at + 4
    end: int = start + _UNSIGNED(m.data, at)[0]
    if end - start > 255 or end > m.size:
        return _any_text(m, at)
    m.stack.append(unicode_text(m.data[start:end]))
    return end


_any_text = _sized_text(4)


def _sized_native(width: int) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        data, at = m.sized(at, width)
        m.stack.append(_native(data))
        return at

    return push


def _sized_bytes(width: int) -> Callable[[Machine, int], int]:
    def push(m: Machine, at: int) -> int:
        data, at = m.sized(at, width)
        m.stack.append(data)
        return at

    return push


def _byte_array(m: Machine, at: int) -> int:
    data, at = m.sized(at, 8)
    m.make(bytearray(data))
    return at


def _text_string(m: Machine, at: int) -> int:
    """STRING: a Python 2 literal in quotes."""
    text, at = m.line(at)
    if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in {b"'", b'"'}:
        raise PickleError("a string is not in quotes")
    m.stack.append(_native(_ESCAPE.sub(_unescaped, text[1:-1])))
    return at


def _unescaped(match: re.Match[bytes]) -> bytes:
    hexadecimal, octal, other = match.groups()
    if hexadecimal is not None:
        return bytes((int(hexadecimal, 16),))
    if octal is not None:
        return bytes((int(octal, 8) & 255,))
    # as in Python, a backslash before anything else stays
    return _ESCAPES.get(other, other if other in {b"\\", b"'", b'"'} else b"\\" + other)


def _text_unicode(m: Machine, at: int) -> int:
    text, at = m.line(at)
    try:
        # not bytes.decode(): looking this codec up by its name imports a module
        value, _ = codecs.raw_unicode_escape_decode(text)
    except UnicodeDecodeError as error:
        raise PickleError(f"a text is malformed: {error.reason}") from None
    m.stack.append(value)
    return at


OPCODES = {
    b"N": ("NONE", _constant(None)),
    b"\x88": ("NEWTRUE", _constant(True)),
    b"\x89": ("NEWFALSE", _constant(False)),
    b"I": ("INT", _text_integer),
    b"L": ("LONG", _text_integer),
    b"J": ("BININT", _number("<i")),
    b"K": ("BININT1", _byte),
    b"M": ("BININT2", _number("<H")),
    b"\x8a": ("LONG1", _long(1)),
    b"\x8b": ("LONG4", _long(4)),
    b"F": ("FLOAT", _text_float),
    b"G": ("BINFLOAT", _number(">d")),
    b"S": ("STRING", _text_string),
    b"T": ("BINSTRING", _sized_native(4)),
    b"U": ("SHORT_BINSTRING", _sized_native(1)),
    b"V": ("UNICODE", _text_unicode),
    b"\x8c": ("SHORT_BINUNICODE", _sized_text(1)),
    b"X": ("BINUNICODE", _text),
    b"\x8d": ("BINUNICODE8", _sized_text(8)),
    b"C": ("SHORT_BINBYTES", _sized_bytes(1)),
    b"B": ("BINBYTES", _sized_bytes(4)),
    b"\x8e": ("BINBYTES8", _sized_bytes(8)),
    b"\x96": ("BYTEARRAY8", _byte_array),
}
