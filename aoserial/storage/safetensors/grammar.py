"""The text of a safetensors header: its tokens, its names, its kinds of tensor. Torch-free.

The format's grammar has three levels and no recursion, so there is no general JSON parser here: a
few patterns over bytes say all of it. Quantifiers are possessive (`*+`): nothing backtracks, and
the time is linear in the text whatever the text is. Stricter than the reference reader where
leniency would let two readers see two things: no leading whitespace, no duplicate or unknown
fields, no escapes in field names, objects only.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import dataclass
from typing import NamedTuple

from aoserial.errors import FormatError, HeaderError, LimitError, TensorNameError, escape
from aoserial.storage.dtypes import BY_CODE
from aoserial.storage.sniff import MAX_HEADER_BYTES

METADATA = "__metadata__"

MAX_NAME_BYTES = 1024

# Dimensions and sizes are i64 in torch and in everything that maps files.
MAX_INT = 2**63 - 1

WHITESPACE = rb"[ \t\n\r]*+"
STRING = rb'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"'
# No name that we take has more escapes than bytes: a bound on what a hostile one costs.
NAME = STRING.replace(b")*+", b"){0,%d}+" % (2 * MAX_NAME_BYTES))
INTEGER = rb"(?:0|[1-9][0-9]{0,18}+)"


def tokens(*parts: bytes) -> re.Pattern[bytes]:
    """A pattern of these parts with whitespace allowed between them and after the last."""
    return re.compile(WHITESPACE.join([*parts, b""]))


# An item begins with the comma before it, or with the brace that opens the header.
_LEAD = rb"(?:\A\{|,)"

# One tensor as every common writer has it, matched loosely for speed: name, dtype and shape,
# offsets. The text of the second group recurs from tensor to tensor; KIND parses it when new.
COMMON_ENTRY = re.compile(
    _LEAD + rb'"([ !#-\[\]-~]{1,1024}+)":\{"dtype":([^]]*+\]),"data_offsets":\['
    rb"(0|[1-9][0-9]{0,18}+),(0|[1-9][0-9]{0,18}+)\]\}"
)
KIND = tokens(rb'"([A-Z0-9_]*+)"', b",", b'"shape"', b":", rb"\[([0-9, \t\n\r]*+)\]")

_BEGIN, _END = b"(?P<begin>%b)" % INTEGER, b"(?P<end>%b)" % INTEGER
_FIELDS = (
    (rb'"dtype"', b":", rb'(?P<dtype>"[A-Z0-9_]*+")'),
    (rb'"shape"', b":", rb"(?P<shape>\[[0-9, \t\n\r]*+\])"),
    (rb'"data_offsets"', b":", rb"\[", _BEGIN, b",", _END, rb"\]"),
)

# The same with any whitespace and any name, one pattern for each order of the fields.
SPACED_ENTRIES = tuple(
    tokens(_LEAD, b"(?P<name>%b)" % NAME, b":", rb"\{", *first, b",", *second, b",", *third, rb"\}")
    for first, second, third in itertools.permutations(_FIELDS)
)

NAMED = tokens(_LEAD, b"(%b)" % NAME, b":")
PAIR = tokens(b"(%b)" % STRING, b":", b"(%b)" % STRING)

_SHAPE = tokens(b"", INTEGER, b"(?:" + WHITESPACE.join([b",", INTEGER, b")*+"]))
_CONTROL = re.compile("[\0-\x1f\x7f-\x9f]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Budgets that bound what a hostile header can cost."""

    header_bytes: int = MAX_HEADER_BYTES
    tensors: int = 1_000_000
    rank: int = 64
    dimensions: int = 8_000_000  # over all distinct shapes: a million tensors of rank 8
    metadata_bytes: int = 16 * 2**20
    metadata_keys: int = 100_000

    def check(self, limit: str, found: int) -> None:
        """Raises `LimitError` when more than the budget of that name was found."""
        allowed: int = getattr(self, limit)
        if found > allowed:
            raise LimitError(
                f"the safetensors header has {found} {_LIMITS[limit]}, {allowed} are allowed",
                limit=limit,
                allowed=allowed,
                found=found,
            )


_LIMITS = {
    "header_bytes": "bytes",
    "tensors": "or more tensors",
    "rank": "dimensions in one shape",
    "dimensions": "or more dimensions in its distinct shapes",
    "metadata_bytes": "bytes of metadata",
    "metadata_keys": "or more metadata keys",
}


class Kind(NamedTuple):
    """What tensors of one dtype and shape have in common."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def read_kind(code: str, dims: bytes, limits: Limits) -> Kind:
    """Dtype, shape and size from the code of a dtype and the text between a shape's brackets.

    Raises:
        FormatError: a dtype that is not in the table.
        HeaderError: a malformed shape, or one that the dtype cannot have.
        LimitError: too many dimensions.
    """
    row = BY_CODE.get(code)
    if row is None:
        raise FormatError(f"has the dtype {quoted(code)}, which this version does not know")
    limits.check("rank", dims.count(b",") + 1)
    shape = _read_shape(dims)
    bits = math.prod(filter(None, shape)) * row.bits
    if bits > MAX_INT:
        raise HeaderError(f"has the shape {list(shape)}, which is too large for any tensor")
    if 0 in shape:
        bits = 0
    if code == "F4":
        # torch's element is two codes, so the file's last dimension is twice the tensor's
        if not shape or shape[-1] % 2:
            raise HeaderError(f"is F4 with shape {list(shape)}; the last dimension must be even")
        shape = (*shape[:-1], shape[-1] // 2)
    if bits % 8:
        raise HeaderError(f"is {code} with shape {list(shape)}, which does not end at a whole byte")
    return Kind(row.name, shape, bits // 8)


def _read_shape(text: bytes) -> tuple[int, ...]:
    if _SHAPE.fullmatch(text):
        return tuple(map(int, text.split(b",")))
    if text.strip():
        raise HeaderError(
            f"has the shape [{text.decode()}], but dimensions are integers from 0 to 2^63-1"
        )
    return ()


def unescape(literal: bytes) -> str:
    """The text of a JSON string, given with its quotes and already matched by `STRING`."""
    try:
        text = literal[1:-1].decode()
        if "\\" in text:
            text = json.loads(f'"{text}"')
            text.encode()  # json lets lone surrogates through, UTF-8 does not
    except UnicodeError:
        shown = quoted(literal[1:-1].decode(errors="backslashreplace"))
        raise HeaderError(f"the text {shown} is not valid Unicode") from None
    return text


def check_name(name: str) -> None:
    """Raises `TensorNameError` for a name that no tensor may have."""
    if not name:
        raise TensorNameError("a tensor's name may not be empty")
    if name == METADATA:
        raise TensorNameError(f"{METADATA!r} is reserved by the format and cannot name a tensor")
    if has_control(name):
        raise TensorNameError(f"the tensor name {quoted(name)} contains a control character")
    try:
        length = len(name.encode())
    except UnicodeEncodeError:
        raise TensorNameError(
            f"the tensor name {quoted(name)} contains a lone surrogate, which UTF-8 cannot store"
        ) from None
    if length > MAX_NAME_BYTES:
        raise TensorNameError(
            f"the tensor name {quoted(name)} has {length} bytes, {MAX_NAME_BYTES} are allowed"
        )


def has_control(text: str) -> bool:
    """Whether there is a C0 or C1 control character, or DEL, in it."""
    return _CONTROL.search(text) is not None


def quoted(text: str) -> str:
    """`text` in quotes, with control characters escaped and cut to a length fit for a message."""
    shown = escape(text if len(text) <= 200 else f"{text[:120]}…{text[-60:]}")
    return f"'{shown}'"
