"""Opcodes as bytes: protocol 2, as torch.save writes it, and the few of later ones. Torch-free.

Those of later protocols stand where protocol 2 cannot say it at all. Python's unpickler and ours
take them under any protocol; the one of `torch.load(weights_only=True)` refuses them, as it refuses
the files that they come from.
"""

from __future__ import annotations

import struct

from aoserial.errors import UnsupportedTensorError
from aoserial.storage.pickle.limits import Limits

HEADER = b"\x80\x02"
MARK, STOP, POP, POP_MARK = b"(", b".", b"0", b"1"
NONE, TRUE, FALSE = b"N", b"\x88", b"\x89"
EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT = b")", b"]", b"}"
TUPLE, TUPLES = b"t", (b")", b"\x85", b"\x86", b"\x87")
APPEND, APPENDS, SETITEM, SETITEMS = b"a", b"e", b"s", b"u"
REDUCE, BUILD, NEWOBJ, NEWOBJ_EX, INST, OBJ = b"R", b"b", b"\x81", b"\x92", b"i", b"o"
BINPERSID, STACK_GLOBAL = b"Q", b"\x93"

# Readers bound the length of a text; bytes, which as text take up to twice as many, are then bytes
_LONGEST_TEXT = Limits().text_bytes
_SMALL = [b"K" + bytes((value,)) for value in range(256)]
_U16, _I32, _U32, _F64 = (struct.Struct(code).pack for code in ("<H", "<i", "<I", ">d"))
_LENGTH_BITS = 32


def none(_: None) -> bytes:
    """NONE."""
    return NONE


def flag(value: bool) -> bytes:
    """NEWTRUE or NEWFALSE."""
    return TRUE if value else FALSE


def integer(value: int) -> bytes:
    """BININT1, BININT2, BININT, LONG1 or LONG4."""
    if 0 <= value < 256:
        return _SMALL[value]
    if 0 <= value < 2**16:
        return b"M" + _U16(value)
    if -(2**31) <= value < 2**31:
        return b"J" + _I32(value)
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes((len(raw),)) + raw if len(raw) < 256 else b"\x8b" + _sized(raw)


def integers(values: tuple[int, ...]) -> bytes:
    """A tuple of them."""
    inside = b"".join(map(integer, values))
    return inside + TUPLES[len(values)] if len(values) < 4 else MARK + inside + TUPLE


def number(value: float) -> bytes:
    """BINFLOAT."""
    return b"G" + _F64(value)


def text(value: str) -> bytes:
    """BINUNICODE."""
    return b"X" + _sized(value.encode("utf-8", "surrogatepass"))


def binary(data: bytes | bytearray) -> bytes | None:
    """BINBYTES, of protocol 3, for bytes that as a text would be too long; else None."""
    return b"B" + _sized(data) if 2 * len(data) > _LONGEST_TEXT else None


def _sized(raw: bytes | bytearray) -> bytes:
    if len(raw) >> _LENGTH_BITS:
        raise UnsupportedTensorError(f"{len(raw)} bytes are too many for a text in a pickle")
    return _U32(len(raw)) + raw


def memo(index: int) -> tuple[bytes, bytes]:
    """What puts the value on top of the stack into the memo, and what gets it from there."""
    if index < 256:
        raw = bytes((index,))
        return b"q" + raw, b"h" + raw
    raw = _U32(index)
    return b"r" + raw, b"j" + raw


def extension(code: int) -> bytes:
    """EXT1, EXT2 or EXT4."""
    for width, opcode in ((1, b"\x82"), (2, b"\x83"), (4, b"\x84")):
        if 0 < code < 2 ** (8 * width - (width == 4)):
            return opcode + code.to_bytes(width, "little")
    raise UnsupportedTensorError(f"{code} is no code of the extension registry")


def on_lines(module: str, name: str) -> bytes | None:
    """A name as GLOBAL and INST have it; None when two lines of UTF-8 cannot hold it."""
    if "\n" in module or "\n" in name:
        return None
    try:
        return f"{module}\n{name}\n".encode()
    except UnicodeEncodeError:
        return None


def name(module: str, name: str) -> bytes:
    """GLOBAL; STACK_GLOBAL, of protocol 4, where two lines of UTF-8 cannot hold the name."""
    lines = on_lines(module, name)
    return text(module) + text(name) + STACK_GLOBAL if lines is None else b"c" + lines
