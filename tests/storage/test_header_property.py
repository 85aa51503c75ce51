"""Our reader against the reference: whatever we accept, safetensors accepts with equal tensors."""

from __future__ import annotations

import json

import pytest
import torch
from hypothesis import example, given, settings, strategies as st
from safetensors import SafetensorError, safe_open

from aoserial.errors import AoserialError
from aoserial.storage import DTYPES
from aoserial.storage.part import nbytes
from aoserial.storage.safetensors import SafetensorsFile

QUICK = settings(max_examples=200, deadline=None)

BITS = {row.code: row.bits for row in DTYPES}


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return tmp_path_factory.mktemp("property") / "x.safetensors"


def raw_bytes(tensor):
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())


def accepted(path, content):
    """Whether we accept the file; if so, checks that the reference reads the same from it."""
    path.write_bytes(content)
    try:
        with SafetensorsFile.open(path, mapped=False) as file:
            metadata = file.metadata
            tensors = {}
            for name, part in file.parts.items():
                try:
                    tensors[name] = part.read()
                except AoserialError:  # F6, or a bool of another byte: listed, not read
                    tensors[name] = None
                assert part.nbytes == nbytes(part.dtype, part.shape)
    except AoserialError:
        return False
    with safe_open(path, "pt") as reference:
        assert (reference.metadata() or {}) == metadata
        assert set(reference.keys()) == set(tensors)
        for name, tensor in tensors.items():
            if tensor is not None:
                expected = reference.get_tensor(name)
                assert (tensor.dtype, tensor.shape) == (expected.dtype, expected.shape)
                assert raw_bytes(tensor) == raw_bytes(expected)
    return True


def framed(text, data):
    raw = text.encode("utf-8", "surrogatepass")
    return len(raw).to_bytes(8, "little") + raw + data


# -- a header from an abstract syntax ---

names = st.one_of(
    st.sampled_from(["a", "b", "c", "layer.0.weight", "é", "e\u0301", "名", "😀"]),
    st.sampled_from(["", "__metadata__", "a\n", "\x7f", "\x85", "\ud800", "x" * 1024, "x" * 1025]),
    st.text(max_size=4),
)
spaces = st.sampled_from(["", "", "", "", " ", "\n", "\t", "\r", "  \n", "\x0b", "\xa0"])
odd_values = st.sampled_from(
    ["null", "true", "1", "-1", "1.5", "[]", "{}", '""', '"F32"', '{"F32":null}', "[[1]]", "[1,]",
     "[-0]", "[1e0]", "[01]", "[1.0]", "[18446744073709551615]", "[9223372036854775808,0]",
     "[0,9223372036854775807]", "[0,0,0]", "[4294967296,4294967296]"]
)  # fmt: skip


@st.composite
def tensors(draw, position):
    """(name, fields as JSON texts, bytes): mostly right, now and then wrong in one way."""
    code = draw(st.sampled_from([*BITS, "F32", "U8", "BF16"]))
    shape = draw(st.lists(st.integers(0, 4), max_size=3))
    if code == "F4" and shape and draw(st.booleans()):
        shape[-1] *= 2
    bits = BITS[code]
    for dim in shape:
        bits *= dim
    size = -(-bits // 8)
    begin = position + draw(st.sampled_from([0] * 12 + [1, -1]))
    end = begin + size + draw(st.sampled_from([0] * 12 + [1, -1]))
    fields = {
        "dtype": json.dumps(code),
        "shape": json.dumps(shape),
        "data_offsets": json.dumps([begin, end]),
    }
    fault = draw(st.sampled_from([None] * 12 + ["wrong", "drop", "extra", "twin"]))
    victim = draw(st.sampled_from(sorted(fields)))
    pairs = draw(st.permutations(list(fields.items())))
    if fault == "wrong":
        odd = draw(odd_values)
        pairs = [(key, odd if key == victim else value) for key, value in pairs]
    elif fault == "drop":
        pairs = [(key, value) for key, value in pairs if key != victim]
    elif fault == "extra":
        pairs.append((draw(st.sampled_from(["x", "Shape", "dtype "])), draw(odd_values)))
    elif fault == "twin":
        pairs.append((victim, fields[victim]))
    return draw(names), pairs, size


@st.composite
def files(draw):
    def space():
        return draw(spaces)

    def quote(text):
        style = draw(st.sampled_from([True, False, False]))
        quoted = json.dumps(text, ensure_ascii=style)
        if draw(st.integers(0, 9)) == 0 and text.isascii() and text:
            quoted = f'"\\u{ord(text[0]):04x}{quoted[2:]}' if text[0].isalnum() else quoted
        return quoted

    items, position = [], 0
    for _ in range(draw(st.integers(0, 4))):
        name, pairs, size = draw(tensors(position))
        position += size
        body = ",".join(
            f"{space()}{quote(key)}{space()}:{space()}{value}{space()}" for key, value in pairs
        )
        items.append(f"{quote(name)}{space()}:{space()}{{{body}}}")
    if draw(st.booleans()):
        value = draw(
            st.one_of(
                st.dictionaries(st.text(max_size=3), st.text(max_size=5), max_size=3).map(
                    json.dumps
                ),
                odd_values,
            )
        )
        items.insert(draw(st.integers(0, len(items))), f"{quote('__metadata__')}:{space()}{value}")
    lead = draw(st.sampled_from([""] * 9 + [" ", "\ufeff"]))
    comma = draw(st.sampled_from([","] * 15 + [",,", "", "}"]))
    tail = draw(st.sampled_from(["", "", "   ", "\n\t\r ", "\0", "{}", ","]))
    text = f"{lead}{{{space()}{comma.join(items)}{space()}}}{tail}"
    length = max(0, position + draw(st.sampled_from([0] * 9 + [1, -1])))
    data = bytes(draw(st.lists(st.integers(0, 255), min_size=length, max_size=length)))
    return framed(text, data)


@QUICK
@given(content=files())
@example(framed("{}", b""))
@example(framed('{"a":{"dtype":"F4","shape":[0,3],"data_offsets":[0,0]}}', b""))
@example(framed('{"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]} ,"b":{}}', b"\0"))
def test_whatever_we_accept_of_generated_headers_the_reference_accepts(path, content):
    accepted(path, content)


@st.composite
def right_files(draw):
    """Files with nothing wrong, in any spelling: we must accept them."""
    items, position = [], 0
    for name in draw(st.sets(st.text("abé名. ", min_size=1, max_size=6), max_size=5)):
        code = draw(st.sampled_from(sorted(BITS)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        if code.startswith(("F4", "F6")):
            shape.append(4)
        bits = BITS[code]
        for dim in shape:
            bits *= dim
        fields = {"dtype": code, "shape": shape, "data_offsets": [position, position + bits // 8]}
        position += bits // 8
        fields = dict(draw(st.permutations(list(fields.items()))))
        separators = draw(st.sampled_from([(",", ":"), (", ", ": "), (" ,\n", "\t:\r ")]))
        text = json.dumps(fields, separators=separators)
        items.append(f"{json.dumps(name, ensure_ascii=draw(st.booleans()))}:{text}")
    if draw(st.booleans()):
        keys = st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=3)
        values = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
        metadata = draw(st.dictionaries(keys, values, max_size=3))
        text = json.dumps(metadata, ensure_ascii=draw(st.booleans()))
        items.append(f'"__metadata__":{text}')
    text = "{" + ",".join(draw(st.permutations(items))) + "}" + " " * draw(st.integers(0, 3))
    return framed(text, bytes(position))


@QUICK
@given(content=right_files())
def test_we_accept_every_right_file_in_any_spelling(path, content):
    assert accepted(path, content)


# -- a small specimen, damaged everywhere ---


def specimen():
    text = (
        '{"__metadata__":{"k":"v\\n"},'
        '"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},'
        '"b.\\u00e9":{"dtype":"BOOL","shape":[1,2],"data_offsets":[8,10]},'
        '"c": {"dtype":"U8","shape":[0,3],"data_offsets":[10,10]}} '
    )
    return framed(text, bytes(range(8)) + b"\0\1")


def test_the_specimen_itself_is_accepted(path):
    assert accepted(path, specimen())


def test_a_file_cut_at_any_byte_is_refused(path):
    whole = specimen()
    for end in range(len(whole)):
        assert not accepted(path, whole[:end])


def test_a_file_with_any_bit_flipped_is_refused_or_read_alike_by_the_reference(path):
    whole = specimen()
    for position in range(len(whole)):
        for bit in range(8):
            damaged = bytearray(whole)
            damaged[position] ^= 1 << bit
            accepted(path, bytes(damaged))


def test_a_file_with_any_byte_left_out_or_doubled_is_read_alike_or_refused(path):
    whole = specimen()
    for position in range(len(whole)):
        for middle in (b"", whole[position : position + 1] * 2):
            damaged = whole[:position] + middle + whole[position + 1 :]
            # once as it is, once with a length that fits
            accepted(path, damaged)
            if position >= 8:
                length = int.from_bytes(whole[:8], "little") + len(middle) - 1
                accepted(path, length.to_bytes(8, "little") + damaged[8:])


def test_the_reference_is_the_more_lenient_one(path):
    """Guards the oracle: were it broken, or stricter than us, the tests above would say nothing."""
    for text in (' {"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}',
                 '{"a":["U8",[1],[0,1]]}',
                 '{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":[]}}'):  # fmt: skip
        assert not accepted(path, framed(text, b"\0"))
        with safe_open(path, "pt") as reference:
            assert reference.keys() == ["a"]
    path.write_bytes(framed('{"a":1}', b""))
    with pytest.raises(SafetensorError):
        safe_open(path, "pt").__enter__()
