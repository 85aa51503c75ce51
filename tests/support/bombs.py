"""Small files that want a lot: each stream here would cost a careless reader gigabytes or hours."""

from __future__ import annotations

import struct

from support.pickle_assembler import (
    APPEND,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    MARK,
    MEMOIZE,
    NONE,
    POP,
    REDUCE,
    SETITEM,
    SETITEMS,
    TUPLE1,
    TUPLE2,
    call,
    get,
    global_,
    integer,
    line_put,
    put,
    stream,
    tensor,
    text,
)

MERSENNE = 2**61 - 1  # Python hashes an int to its remainder by this


def laughs(levels: int) -> bytes:
    """`[x, x]` where x is `[y, y]` …: a line of opcodes a level, 2**levels leaves."""
    body = EMPTY_LIST + put(0)
    for level in range(levels):
        body += POP + EMPTY_LIST + MARK + get(level) * 2 + b"e" + put(level + 1)
    return body


def tuple_laughs(levels: int) -> bytes:
    """The same of tuples, as a key: hashing it would take 2**levels steps."""
    body = EMPTY_TUPLE
    for _ in range(levels):
        body += b"2" + TUPLE2
    return EMPTY_DICT + body + NONE + SETITEM


def flood(keys: range, wrap: bytes = b"") -> bytes:
    """Keys with one hash: a dict of them takes quadratic time."""
    pairs = b"".join(integer(key * MERSENNE) + wrap + NONE for key in keys)
    return EMPTY_DICT + MARK + pairs + SETITEMS


# name: (body of the pickle, limit that it spends; None when it loads, "" when it is malformed)
BOMBS: dict[str, tuple[bytes, str | None]] = {
    "memo index 2**28": (text("a") + put(0x0FFFFFFF) + POP + get(0x0FFFFFFF), None),
    "memo index 2**32 - 1": (text("a") + put(2**32 - 1), None),
    "memo index of ten digits": (text("a") + line_put(10**9), None),
    "negative memo index": (text("a") + line_put(-1), ""),
    "ten million memo entries": (NONE + MEMOIZE * 10_000_000, "memo"),
    "scattered memo entries": (
        NONE + b"".join(b"r" + struct.pack("<I", 3 * n) for n in range(3_200_000)),
        "memo",
    ),
    "billion laughs": (laughs(40), None),
    "billion laughs of tuples": (tuple_laughs(200), None),
    "list in itself": (EMPTY_LIST + put(0) + get(0) + APPEND, None),
    "dict in itself": (EMPTY_DICT + put(0) + text("k") + get(0) + SETITEM, None),
    "object in its own arguments": (
        EMPTY_LIST + put(0) + global_("a", "b") + get(0) + TUPLE1 + REDUCE + APPEND,
        None,
    ),
    "forty thousand keys of one hash": (flood(range(1, 40_000)), None),
    "forty thousand tuples as keys": (flood(range(1, 40_000), TUPLE1), None),
    "text of 2**40 bytes": (b"\x8d" + struct.pack("<Q", 2**40) + b"a", ""),
    "bytes of 2**63 bytes": (b"\x8e" + struct.pack("<Q", 2**63) + b"a", ""),
    "bytearray of 2**40 bytes": (b"\x96" + struct.pack("<Q", 2**40) + b"a", ""),
    "frame of 2**40 bytes": (b"\x95" + struct.pack("<Q", 2**40) + NONE, ""),
    "a million frames": ((b"\x95" + bytes(8)) * 1_000_000 + NONE, None),
    "frames inside frames": ((b"\x95" + struct.pack("<Q", 1)) * 1000 + NONE, None),
    "two million doublings": (NONE + b"2" * 2_000_000, "stack"),
    "two million no-ops": ((NONE + POP) * 1_000_000 + NONE, None),
    "a million marks": (MARK * 1_000_000, "marks"),
    "lists as deep as can be": (EMPTY_LIST * 400_000 + APPEND * 399_999, "depth"),
    "tuples as deep as can be": (EMPTY_TUPLE + TUPLE1 * 400_000, "depth"),
    "a million tuples inside each other as a key": (
        EMPTY_DICT + EMPTY_TUPLE + TUPLE1 * 1_000_000 + NONE + SETITEM,
        "objects",
    ),
    "empty lists": (EMPTY_LIST + b"]a" * 1_000_000, "objects"),
    "empty dicts": (EMPTY_LIST + b"}a" * 1_000_000, "objects"),
    "empty sets": (EMPTY_LIST + b"\x8fa" * 1_000_000, "objects"),
    "objects": (
        EMPTY_LIST + global_("a", "b") + put(0) + POP + (get(0) + b")Ra") * 300_000,
        None,
    ),
    "objects with states": (
        EMPTY_LIST + global_("a", "b") + put(0) + POP + (get(0) + b")R)ba") * 200_000,
        None,
    ),
    "dicts of one": (EMPTY_LIST + b"}NNsa" * 600_000, "objects"),
    "dicts of one tuple": (EMPTY_LIST + b"}N\x85Nsa" * 400_000, "objects"),
    "a dict of tuples": (EMPTY_DICT + b"N\x85Ns" * 600_000, "objects"),
    "a set of integers": (
        b"\x8f" + MARK + b"".join(b"J" + struct.pack("<i", n) for n in range(400_000)) + b"\x90",
        None,
    ),
    "frozensets": (EMPTY_LIST + b"(\x91a" * 500_000, "objects"),
    "names": (b"".join(b"c%x\nb\n0" % n for n in range(600_000)) + NONE, "objects"),
    "laughing tensors": (tensor() + laughs(40).replace(EMPTY_LIST, b"", 1), "tensors"),
    "texts of two letters": (EMPTY_LIST + b"\x8c\x02aba" * 500_000, None),
    "texts of one letter": (EMPTY_LIST + b"\x8c\x01aa" * 500_000, None),
    "an integer of a megabyte": (
        b"\x8b" + struct.pack("<I", 2**20) + b"\xff" * 2**20,
        "integer_bits",
    ),
    "an integer of a million digits": (b"I" + b"9" * 1_000_000 + b"\n", ""),
    "a float of a million digits": (b"F" + b"9" * 1_000_000 + b"\n", ""),
    "a name of a megabyte": (global_("a" * 2**20, "b" * 2**20), None),
    "expanded to 2**40 elements": (tensor(size=(2**20, 2**20), stride=(0, 0)), None),
    "arguments of a call": (call(global_("a", "b"), *[NONE] * 1_100_000), "stack"),
}


# Seconds each; the rest covers every kind of them once
SLOW = frozenset(
    {
        "a dict of tuples",
        "dicts of one",
        "empty dicts",
        "empty lists",
        "frozensets",
        "laughing tensors",
        "names",
        "objects",
        "scattered memo entries",
        "texts of two letters",
        "two million no-ops",
    }
)


def built(name: str) -> bytes:
    """The stream of a bomb."""
    return stream(BOMBS[name][0], protocol=4)
