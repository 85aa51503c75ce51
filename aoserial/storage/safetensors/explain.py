"""Says where and why the text of a header breaks the grammar, once it is known that it does.

The patterns that read a header only tell that an item does not match. This walks the one item
again, token by token, and stops at the first that is wrong. It accepts nothing. Torch-free.
"""

from __future__ import annotations

import re
from typing import NoReturn

from aoserial.errors import FormatError, HeaderError, TensorNameError
from aoserial.storage.safetensors.grammar import (
    INTEGER,
    METADATA,
    NAME,
    STRING,
    WHITESPACE,
    check_name,
    quoted,
    unescape,
)

_STRING = re.compile(STRING)
_NAME = re.compile(NAME)
_WHITESPACE = re.compile(WHITESPACE)
_INTEGER = re.compile(INTEGER + rb"(?![-+.0-9A-Za-z_])")
_SCALAR = re.compile(rb"[-+.0-9A-Za-z_]++")
_FIELDS = ("dtype", "shape", "data_offsets")

_VALUES = {
    "{": "an object",
    "[": "an array",
    '"': "a string",
    "n": "null",
    "t": "true",
    "f": "false",
}


def explain(raw: bytes, position: int, *, metadata: bool = False) -> FormatError:
    """The error for the item that begins at `position` (its leading brace or comma included).

    Args:
        raw: the header's text.
        position: where the item begins; with `metadata`, where a key of the map should.
        metadata: the item is a pair of the metadata map.
    """
    walk = _Walk(raw, position)
    try:
        if metadata:
            walk.pair()
        else:
            walk.item()
    except (HeaderError, TensorNameError) as error:
        found = HeaderError(error.message)
        return found.locate(name=walk.name, field=walk.field)
    # The walk and the patterns disagree: a bug here, but the text was refused and stays so.
    return HeaderError(f"the header breaks the grammar near byte {8 + position} of the file")


class _Walk:
    """A position in the text, and the tensor and field it is in."""

    def __init__(self, raw: bytes, position: int) -> None:
        self.raw = raw
        self.position = position
        self.name: str | None = None
        self.field: str | None = None

    def item(self) -> None:
        lead = "{" if self.position == 0 else ","
        self.expect(lead, "between two tensors" if lead == "," else "at the start")
        if self.peek() == "}":
            self.fail("the comma before the closing brace is one too many")
        name = self.string("a tensor's name", _NAME)
        check_name(name)
        self.name = name
        self.expect(":", "after the name")
        if self.peek() != "{":
            self.fail(f"must be described by an object, not {self.value()}")
        self.expect("{", "")
        seen: set[str] = set()
        while self.peek() != "}":
            if seen:
                self.expect(",", "between two fields")
            self.entry_field(seen)
        self.field = None
        for field in _FIELDS:
            if field not in seen:
                self.fail(f"has no {field!r}")

    def entry_field(self, seen: set[str]) -> None:
        self.field = None
        start = self.skip()
        field = self.string("a field's name")
        if field not in _FIELDS:
            self.fail(f"has the unknown field {quoted(field)}")
        if field in seen:
            self.fail(f"has the field {field!r} twice")
        if self.raw[start : self.position] != f'"{field}"'.encode():
            self.fail(f"has the field {field!r} spelled with escapes")
        seen.add(field)
        self.field = field
        self.expect(":", "after a field's name")
        if field == "dtype":
            self.dtype()
        else:
            self.integers(None if field == "shape" else 2)

    def dtype(self) -> None:
        if self.peek() != '"':
            self.fail(f"must be a string, not {self.value()}")
        start = self.position
        code = self.string("a dtype")
        if not re.fullmatch(rb'"[A-Z0-9_]*"', self.raw[start : self.position]):
            self.fail(f"is {quoted(code)}, which is not the code of a dtype")

    def integers(self, count: int | None) -> None:
        if self.peek() != "[":
            self.fail(f"must be an array of integers, not {self.value()}")
        self.expect("[", "")
        found = 0
        # an array may be the whole header long: what is wrong shows early or is its length
        while self.peek() != "]" and found <= 100:
            if found:
                self.expect(",", "between two integers")
            self.skip()
            match = _INTEGER.match(self.raw, self.position)
            if match is None:
                self.fail(f"has {self.value()} where an integer from 0 to 2^63-1 must stand")
            self.position = match.end()
            found += 1
        if count is not None and found != count:
            more = " or more" if found > 100 else ""
            self.fail(f"must have {count} integers, not {found}{more}")
        if count is None and found > 100:
            self.fail("is an array of more than 100 integers, which is not a shape")
        self.expect("]", "after the last integer")

    def pair(self) -> None:
        self.name = METADATA
        if self.peek() == "}":
            self.fail("the comma before the closing brace is one too many")
        key = self.string("a key")
        self.field = key
        self.expect(":", "after the key")
        if self.peek() != '"':
            self.fail(f"must be a string, not {self.value()}")
        self.string("a value")
        self.field = None
        self.expect(",", "between two pairs")

    # -- tokens -------------------------------------------------------------------------------

    def skip(self) -> int:
        match = _WHITESPACE.match(self.raw, self.position)
        assert match is not None
        self.position = match.end()
        return self.position

    def peek(self) -> str:
        start = self.skip()
        return self.raw[start : start + 1].decode("latin-1")

    def expect(self, char: str, where: str) -> None:
        if self.peek() != char:
            self.fail(f"needs {char!r} {where}, but there is {self.value()}")
        self.position += 1

    def string(self, what: str, pattern: re.Pattern[bytes] = _STRING) -> str:
        if self.peek() != '"':
            self.fail(f"needs {what} in quotes, but there is {self.value()}")
        match = pattern.match(self.raw, self.position)
        if match is None:
            shown = quoted(self.raw[self.position + 1 : self.position + 41].decode("latin-1"))
            self.fail(
                f"{what} beginning {shown} does not end, is too long, or has a raw control "
                f"character or an escape that JSON does not know"
            )
        self.position = match.end()
        return unescape(match[0])

    def value(self) -> str:
        """What stands here, in words."""
        first = self.peek()
        if not first:
            return "the end of the header"
        scalar = _SCALAR.match(self.raw, self.position)
        if first in _VALUES and (scalar is None or scalar[0] in {b"null", b"true", b"false"}):
            return _VALUES[first]
        return quoted(scalar[0].decode() if scalar else first)

    def fail(self, message: str) -> NoReturn:
        raise HeaderError(f"{message} (byte {8 + self.position} of the file)")
