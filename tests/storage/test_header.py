"""The header parser: what it refuses, with which error, and what it must take."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tracemalloc

import pytest

from aoserial.errors import FormatError, HeaderError, LimitError
from aoserial.storage.safetensors import Limits, SafetensorsFile, parse_header

ONE = '"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}'


def entry(name="a", dtype="U8", shape=(4,), begin=0, end=4):
    shape = list(shape)
    fields = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    return f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}"


def header(*items):
    return "{" + ",".join(items) + "}"


def parse(text, data_bytes=4, **limits):
    raw = text if isinstance(text, bytes) else text.encode()
    return parse_header(raw, data_bytes=data_bytes, limits=Limits(**limits))


@pytest.fixture
def write(tmp_path):
    def write(content: bytes):
        path = tmp_path / "x.safetensors"
        path.write_bytes(content)
        return path

    return write


def test_entries_come_in_data_order_with_torch_names_and_shapes():
    text = header(
        '"__metadata__":{"format":"pt"}',
        entry("late", "BF16", (2,), 4, 8),
        entry("codes", "F4", (2, 4), 0, 4),
        entry("empty_b", "F32", (0, 3), 4, 4),
        entry("empty_a", "F32", (0, 3), 4, 4),
    )
    parsed = parse(text, 8)
    assert list(parsed.entries.items()) == [
        ("codes", ("float4_e2m1fn_x2", (2, 2), 0, 4)),
        ("empty_a", ("float32", (0, 3), 4, 4)),
        ("empty_b", ("float32", (0, 3), 4, 4)),
        ("late", ("bfloat16", (2,), 4, 8)),
    ]
    assert parsed.metadata == {"format": "pt"}
    assert parsed.raw == text.encode()
    assert parsed.data_start == 8 + len(text)


@pytest.mark.parametrize(
    "text",
    [
        '{ "a" : { "dtype" : "F32" , "shape" : [ 1 ] , "data_offsets" : [ 0 , 4 ] } } \n\t\r',
        '{"a":{"shape":[1],"dtype":"F32","data_offsets":[0,4]}}',
        '{"a":{"data_offsets":[0,4],"shape":[1],"dtype":"F32"}}',
        '{"a":{"data_offsets":[0,4],"dtype":"F32","shape":[1]}}',
        "{" + ONE + ' ,"b":{"dtype":"U8","shape":[ ],"data_offsets":[4,5]} }',
        '{"\\u0061":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
        '{"a":{"dtype":"F32", "shape": [1],"data_offsets":[0,4]},"__metadata__":{ "k" : "v" } }',
    ],
)
def test_any_whitespace_order_and_escapes_in_names_are_read(text):
    parsed = parse(text, 5 if '"b"' in text else 4)
    assert parsed.entries["a"] == ("float32", (1,), 0, 4)


def test_a_file_may_have_no_tensors():
    assert parse("{}", 0).entries == {}
    assert parse('{ "__metadata__" : { } } ', 0).metadata == {}


def test_names_that_differ_only_in_their_normal_form_are_read():
    text = header(entry("\u00e9", end=4), entry("e\u0301", begin=4, end=8))
    assert list(parse(text, 8).entries) == ["\u00e9", "e\u0301"]


def test_f6_is_listed_with_its_size():
    assert parse(header(entry("a", "F6_E2M3", (4,), 0, 3)), 3).entries["a"] == (
        "float6_e2m3fn", (4,), 0, 3,
    )  # fmt: skip


BAD_LENGTHS = {
    "length 2^64-1": (b"\xff" * 8 + b"{}", LimitError),
    "length 2^63": ((1 << 63).to_bytes(8, "little") + b"{}", LimitError),
    "length over 100 MB": ((100_000_001).to_bytes(8, "little") + b"{}", LimitError),
    "length over the file": ((3).to_bytes(8, "little") + b"{}", HeaderError),
    "length 0": (bytes(8) + b"{}", HeaderError),
    "length 1": ((1).to_bytes(8, "little") + b"{}", HeaderError),
    "no bytes": (b"", HeaderError),
    "seven bytes": (b"\x02\0\0\0\0\0\0", HeaderError),
    "eight bytes": (b"\x02\0\0\0\0\0\0\0", HeaderError),
}


@pytest.mark.parametrize("case", BAD_LENGTHS)
def test_a_header_length_that_cannot_be_is_refused_at_once(case, write):
    content, kind = BAD_LENGTHS[case]
    path = write(content)
    began = time.perf_counter()
    with pytest.raises(kind) as caught:
        SafetensorsFile.open(path)
    assert time.perf_counter() - began < 0.2
    assert str(caught.value).startswith(str(path))


# text of the header (4 bytes of data), words the message must have
REFUSED = {
    # framing
    "leading space": (" " + header(ONE), "must start"),
    "leading newline": ("\n" + header(ONE), "must start"),
    "byte order mark": ("\ufeff" + header(ONE), "must start"),
    "UTF-16": (header(ONE).encode("utf-16-le"), "quotes"),
    "trailing NUL": (header(ONE) + "\0", "only whitespace may follow"),
    "two objects": (header(ONE) + "{}", "only whitespace may follow"),
    "comment": ("{/**/" + ONE + "}", "quotes"),
    "comma at the end": ("{" + ONE + ",}", "one too many"),
    "comma at the start": ("{," + ONE + "}", "quotes"),
    "no comma": ("{" + ONE + '"b":{}}', "','"),
    "brace for a comma": ("{" + ONE + "{" + entry("b", shape=(0,), begin=4) + "}", "','"),
    "cut after an entry": ("{" + ONE, "end of the header"),
    "cut in a name": ('{"a', "does not end"),
    "an array": ("[]", "must start"),
    "name without value": ('{"a"}', "':'"),
    # the entry
    "entry as array": ('{"a":["F32",[1],[0,4]]}', "not an array"),
    "entry as null": ('{"a":null}', "not null"),
    "entry as string": ('{"a":"F32"}', "not a string"),
    "entry as number": ('{"a":12}', "'12'"),
    "empty entry": ('{"a":{}}', "no 'dtype'"),
    "no dtype": ('{"a":{"shape":[1],"data_offsets":[0,4]}}', "no 'dtype'"),
    "no shape": ('{"a":{"dtype":"F32","data_offsets":[0,4]}}', "no 'shape'"),
    "no offsets": ('{"a":{"dtype":"F32","shape":[1]}}', "no 'data_offsets'"),
    "dtype twice": (
        '{"a":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}}', "twice"),
    "dtype twice, no shape": ('{"a":{"dtype":"F32","dtype":"F32","data_offsets":[0,4]}}', "twice"),
    "shape twice": (
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"shape":[1]}}', "twice"),
    "unknown field": (
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}}', "unknown field 'x'"),
    "unknown field first": (
        '{"a":{"x":{"y":[]},"dtype":"F32","shape":[1],"data_offsets":[0,4]}}', "unknown field"),
    "unknown field in the middle": (
        '{"a":{"dtype":"F32","x":[1],"data_offsets":[0,4]}}', "unknown field"),
    "escaped field": (
        '{"a":{"\\u0064type":"F32","shape":[1],"data_offsets":[0,4]}}', "spelled with escapes"),
    "field is no string": ('{"a":{1:2}}', "quotes"),
    "dtype as object": (
        '{"a":{"dtype":{"F32":null},"shape":[1],"data_offsets":[0,4]}}', "not an object"),
    "dtype escaped": (
        '{"a":{"dtype":"\\u004632","shape":[1],"data_offsets":[0,4]}}', "not the code"),
    "dtype in lower case": (
        '{"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}}', "not the code"),
    "shape as number": ('{"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}}', "an array"),
    "nested shape": ('{"a":{"dtype":"F32","shape":[[1]],"data_offsets":[0,4]}}', "an integer"),
    "one offset": ('{"a":{"dtype":"F32","shape":[1],"data_offsets":[4]}}', "2 integers, not 1"),
    "three offsets": (
        '{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4,4]}}', "2 integers, not 3"),
    # numbers
    **{
        f"dimension {number}": (
            ONE.join("{}").replace("[1]", f"[{number}]"), "from 0 to 2^63-1")
        for number in ("-1", "-0", "1.0", "1e0", "01", "+1", "1 1", "1,", ",1", "true", "null",
                       '"1"', "99999999999999999999", "NaN", "0x1", "1_0")
    },
    **{
        f"offset {number}": (
            ONE.join("{}").replace("[0,", f"[{number},"), "from 0 to 2^63-1")
        for number in ("-0", "0.0", "00", "", "99999999999999999999", "false")
    },
    "dimension 2^63": (header(entry(shape=(2**63,))), "too large"),
    "product overflows": (header(entry(shape=(2**32, 2**32))), "too large"),
    "product times bits overflows": (header(entry(dtype="F64", shape=(2**60,))), "too large"),
    "huge, huge, 0": (header(entry(shape=(2**62, 4, 0), end=0)), "too large"),
    "0, huge, huge": (header(entry(shape=(0, 2**62, 4), end=0)), "too large"),
    "0, 2^63": (header(entry(shape=(0, 2**63), end=0)), "too large"),
    # kinds
    "F4 odd": (header(entry(dtype="F4", shape=(2, 3), end=3)), "even"),
    "F4 odd row of one": (header(entry(dtype="F4", shape=(2, 1), end=1)), "even"),
    "F4 without dimensions": (header(entry(dtype="F4", shape=(), end=0)), "even"),
    "F4 empty, odd": (header(entry(dtype="F4", shape=(0, 3), end=0)), "even"),
    "F6 of three": (header(entry(dtype="F6_E3M2", shape=(3,), end=2)), "whole byte"),
    "unknown dtype": (header(entry(dtype="F128")), "'F128'"),
    "no dtype at all": (header(entry(dtype="")), "''"),
    # layout
    "too few bytes": (header(entry(shape=(5,))), "takes 5 bytes"),
    "too many bytes": (header(entry(shape=(3,))), "takes 3 bytes"),
    "reversed offsets": (header(entry(begin=4, end=0)), "[4, 0]"),
    "full overlap": (header(entry("a"), entry("b")), "'a' and 'b' overlap"),
    "partial overlap": (
        header(entry("a", shape=(3,), end=3), entry("b", shape=(2,), begin=2)), "'a' and 'b'"),
    "hole at the start": (header(entry(shape=(3,), begin=1)), "'a', begins at byte 1"),
    "hole in the middle": (
        header(entry("a", shape=(1,), end=1), entry("b", shape=(2,), begin=2)), "leave a hole"),
    "hole at the end": (header(entry(shape=(3,), end=3)), "'a', ends at byte 3"),
    "one byte short": (header(entry(shape=(5,), end=5)), "ends at byte 5"),
    "empty one inside another": (
        header(entry("a"), entry("z", shape=(0,), begin=2, end=2)), "overlap"),
    "empty one past the end": (
        header(entry("a"), entry("z", shape=(0,), begin=8, end=8)), "leave a hole"),
    "data without tensors": ("{}", "has 4 bytes of data"),
    # names
    "duplicate": (header(ONE, ONE), "'a' occurs twice"),
    "duplicate through an escape": (header(ONE, ONE.replace('"a"', '"\\u0061"')), "occurs twice"),
    "duplicate, raw and escaped": (
        header(ONE.replace('"a"', '"\u00e9"'), ONE.replace('"a"', '"\\u00e9"')), "occurs twice"),
    "empty name": (header(entry("")), "empty"),
    "name too long": (header(entry("x" * 1025)), "1025 bytes"),
    "name too long in UTF-8": (header(ONE.replace('"a"', f'"{"é" * 513}"')), "1026 bytes"),
    "escaped control character": (header(entry("a\n")), "control character"),
    "DEL": (header(ONE.replace('"a"', '"\x7f"')), "control character"),
    "C1 control character": (header(ONE.replace('"a"', '"\x85"')), "control character"),
    "raw control character": (header(ONE.replace('"a"', '"\x01"')), "control character"),
    "unknown escape": (header(ONE.replace('"a"', '"\\x41"')), "JSON does not know"),
    "half an escape": (header(ONE.replace('"a"', '"\\u00"')), "JSON does not know"),
    "lone surrogate": (header(ONE.replace('"a"', '"\\ud800"')), "Unicode"),
    "lone low surrogate": (header(ONE.replace('"a"', '"x\\udc00"')), "Unicode"),
    "name of many escapes": (header(ONE.replace('"a"', f'"{(chr(92) + "n") * 9999}"')), "too long"),
    "invalid UTF-8": (header(ONE).encode().replace(b'"a"', b'"\xff"'), "Unicode"),
    "surrogate in UTF-8": (header(ONE).encode().replace(b'"a"', b'"\xed\xa0\x80"'), "Unicode"),
    "overlong UTF-8": (header(ONE).encode().replace(b'"a"', b'"\xc1\xa1"'), "Unicode"),
    # metadata
    "metadata null": ('{"__metadata__":null,' + ONE + "}", "map of strings"),
    "metadata list": ('{"__metadata__":[],' + ONE + "}", "map of strings"),
    "metadata int value": ('{"__metadata__":{"a":1},' + ONE + "}", "must be a string"),
    "metadata nested": ('{"__metadata__":{"a":{}},' + ONE + "}", "not an object"),
    "metadata twice": ('{"__metadata__":{},"__metadata__":{},' + ONE + "}", "twice"),
    "metadata twice, escaped": (
        '{"__metadata__":{},"\\u005f_metadata__":{},' + ONE + "}", "twice"),
    "metadata key twice": ('{"__metadata__":{"a":"","\\u0061":""},' + ONE + "}", "occurs twice"),
    "metadata key with control": ('{"__metadata__":{"\\u0000":""},' + ONE + "}", "control"),
    "metadata lone surrogate": ('{"__metadata__":{"a":"\\ud800"},' + ONE + "}", "Unicode"),
    "metadata comma": ('{"__metadata__":{"a":"",},' + ONE + "}", "one too many"),
    "metadata first comma": ('{"__metadata__":{,"a":""},' + ONE + "}", "quotes"),
    "metadata no comma": ('{"__metadata__":{"a":"" "b":""},' + ONE + "}", "','"),
    "metadata not closed": ('{"__metadata__":{"a":""', "','"),
    "metadata as a tensor": (header(ONE.replace('"a"', '"__metadata__"')), "map strings"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_header_that_breaks_a_rule_is_refused_with_its_reason(case):
    text, words = REFUSED[case]
    kind = FormatError if case in {"unknown dtype", "no dtype at all"} else HeaderError
    with pytest.raises(FormatError) as caught:
        parse(text)
    assert isinstance(caught.value, kind)
    assert words in str(caught.value)


def test_an_error_names_the_tensor_and_the_field():
    with pytest.raises(HeaderError) as caught:
        parse('{"deep.name":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}')
    assert caught.value.location.name == "deep.name"
    with pytest.raises(HeaderError) as caught:
        parse('{"deep.name":{"shape":[-1],"dtype":"F32","data_offsets":[0,4]}}')
    assert caught.value.location.field == "shape"


def test_a_hostile_name_is_escaped_in_messages():
    with pytest.raises(HeaderError) as caught:
        parse(header(entry("\x1b[31m" + "x" * 5000)))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500


LIMITS = {
    "tensors": (header(entry("a"), entry("b", shape=(0,), begin=4)), {"tensors": 1}),
    "rank": (header(entry(shape=[1] * 65, end=1)), {}),
    "dimensions": (header(entry(shape=(2, 2))), {"dimensions": 1}),
    "metadata_bytes": ('{"__metadata__":{"a":"xxxx"},' + ONE + "}", {"metadata_bytes": 5}),
    "metadata_keys": ('{"__metadata__":{"a":"","b":""},' + ONE + "}", {"metadata_keys": 1}),
    "header_bytes": (header(ONE), {"header_bytes": 10}),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_budget_spent_is_a_limit_error_that_names_it(limit):
    text, limits = LIMITS[limit]
    with pytest.raises(LimitError) as caught:
        parse(text, **limits)
    assert caught.value.limit == limit
    assert caught.value.found > caught.value.allowed


def test_rank_64_is_read():
    assert parse(header(entry(shape=[1] * 63 + [4]))).entries["a"][1] == (1,) * 63 + (4,)


BOMBS = {
    "a shape of millions": b'{"a":{"dtype":"U8","shape":[' + b"1," * 3_000_000 + b"1]}}",
    "a shape of millions, in an entry that parses": b'{"a":{"dtype":"U8","shape":['
    + b"1," * 3_000_000 + b'1],"data_offsets":[0,1]}}',
    "an unknown field of millions": b'{"a":{"x":[' + b"0," * 3_000_000 + b"0]}}",
    "offsets of millions": b'{"a":{"data_offsets":[' + b"0," * 3_000_000 + b"0]}}",
    "a deep array": b'{"a":' + b"[" * 6_000_000,
    "a deep object": b'{"a":' * 1_000_000,
    "a name without end": b'{"' + b"a" * 6_000_000,
    "a name of escapes": b'{"' + b"\\n" * 3_000_000,
    "quotes": b"{" + b'"' * 6_000_000,
    "commas": b"{" + b"," * 6_000_000,
    "brackets after a common start": b'{"a":{"dtype":' + b"]" * 6_000_000,
    "a megabyte of whitespace in each place": b'{"a"' + b" " * 6_000_000,
    "metadata of escapes": b'{"__metadata__":{"a":"' + b'\\"' * 3_000_000,
    "metadata of keys": b'{"__metadata__":{'
    + b",".join(b'"%06d":""' % i for i in range(25_000)),
}  # fmt: skip


@pytest.mark.parametrize("case", BOMBS)
def test_a_bomb_is_refused_in_linear_time_and_little_memory(case):
    raw = BOMBS[case]
    began = time.process_time()
    with pytest.raises((HeaderError, LimitError)):
        parse(raw, metadata_keys=20_000)
    assert time.process_time() - began < 3
    tracemalloc.start()
    try:
        with pytest.raises((HeaderError, LimitError)):
            parse(raw, metadata_keys=20_000)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * len(raw) + 2**20


def _many(count, *, size):
    items = [
        b'"t%07d":{"dtype":"U8","shape":[%d],"data_offsets":[%d,%d]}'
        % (index, size, size * index, size * index + size)
        for index in range(count)
    ]
    return b"{" + b",".join(items) + b"}"


@pytest.mark.parametrize("size", [0, 1])
def test_memory_for_many_tensors_is_within_four_times_the_header(size):
    count = 30_000
    raw = _many(count, size=size)
    tracemalloc.start()
    try:
        parse(raw, size * count)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * len(raw) + 2**20  # the fourth is the header itself


def test_many_tensors_parse_in_less_than_twice_the_time_json_needs():
    raw = _many(20_000, size=1)
    times = {}
    for name, run in {
        "ours": lambda: parse(raw, 20_000),
        "json": lambda: json.loads(raw),
    }.items():
        times[name] = min(_timed(run) for _ in range(3))
    assert times["ours"] < 2 * times["json"]


def _timed(run):
    began = time.process_time()
    run()
    return time.process_time() - began


def test_storage_is_imported_without_torch():
    program = (
        "import sys, aoserial.storage, aoserial.storage.safetensors as s\n"
        "s.parse_header(b'{}', data_bytes=0)\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
