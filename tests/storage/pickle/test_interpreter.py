"""The interpreter against CPython's pickle, and against streams that CPython would not write."""

from __future__ import annotations

import math
import pickle
import pickletools
import tracemalloc

import pytest
from hypothesis import given, settings, strategies as st
from support import pickle_assembler as asm
from support.pickle_assembler import (
    APPEND,
    BUILD,
    EMPTY_DICT,
    EMPTY_LIST,
    EMPTY_TUPLE,
    MARK,
    MEMOIZE,
    NEWOBJ,
    NONE,
    POP,
    REDUCE,
    SETITEM,
    SETITEMS,
    STOP,
    TUPLE,
    call,
    get,
    global_,
    line_get,
    line_put,
    list_,
    put,
    stream,
    text,
)
from support.timing import seconds

from aoserial.errors import LimitError, PickleError
from aoserial.storage.pickle import Key, Limits, Name, ObjectValue
from aoserial.storage.pickle.builder import Builder
from aoserial.storage.pickle.interpreter import interpret, interpret_all
from aoserial.storage.pickle.legacy import no_reference
from aoserial.storage.pickle.machine import TruncatedError
from aoserial.storage.pickle.opcodes import OPCODES
from aoserial.storage.pickle.recognise import Recogniser


def run(data: bytes, limits: Limits | None = None):
    limits = limits or Limits()
    return interpret_all(data, Recogniser(no_reference, limits), limits).root


def run_body(body: bytes, **limits: int):
    return run(stream(body, protocol=4), Limits(**limits))


# -- against CPython ------------------------------------------------------------------------------


def test_every_opcode_of_every_protocol_has_its_name_and_is_there():
    ours = {code: name for code, (name, _) in OPCODES.items() if code != b"\0"}
    assert ours == {info.code.encode("latin-1"): info.name for info in pickletools.opcodes}


scalars = (
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=[]))
    | st.binary()
)
keys = st.text() | st.integers(-(2**63), 2**63 - 1) | st.none() | st.binary()
objects = st.recursive(
    scalars | st.sets(keys) | st.frozensets(keys) | st.binary().map(bytearray),
    lambda inner: st.lists(inner) | st.dictionaries(keys, inner) | st.lists(inner).map(tuple),
    max_leaves=12,
)


@given(objects, st.integers(0, 5))
@settings(deadline=None)
def test_plain_objects_come_out_as_pickle_gives_them(value, protocol):
    data = pickle.dumps(value, protocol)
    found = run(data)
    assert found == value
    assert repr(found) == repr(pickle.loads(data))  # True is not 1, and -0.0 is not 0.0


@given(objects)
@settings(deadline=None)
def test_optimized_pickles_come_out_the_same(value):
    for protocol in (2, 4):
        assert run(pickletools.optimize(pickle.dumps(value, protocol))) == value


@pytest.mark.parametrize("protocol", range(6))
def test_special_floats_and_complex_numbers(protocol):
    values = [math.inf, -math.inf, -0.0, 5e-324, complex(1.5, -0.0)]
    assert repr(run(pickle.dumps(values, protocol))) == repr(values)
    assert math.isnan(run(pickle.dumps(math.nan, protocol)))


@pytest.mark.parametrize("protocol", range(6))
def test_what_is_one_object_stays_one(protocol):
    shared = [1]
    found = run(pickle.dumps([shared, shared, (shared,), {"a": shared}], protocol))
    assert found[0] is found[1] is found[2][0] is found[3]["a"]


@pytest.mark.parametrize("protocol", range(6))
def test_cycles_come_out_as_cycles(protocol):
    cycle: list = []
    cycle.append((cycle, {"again": cycle}))
    found = run(pickle.dumps(cycle, protocol))
    assert found[0][0] is found
    assert found[0][1]["again"] is found


@pytest.mark.parametrize("text_", ["1", "-1", "0", "01", "00", str(10**60), f"{10**60}L"])
def test_integers_in_digits(text_):
    data = b"I%s\n." % text_.encode()
    assert repr(run(data)) == repr({"01": True, "00": False}.get(text_, int(text_.rstrip("L"))))


@pytest.mark.parametrize(
    ("literal", "value"),
    [
        (rb"'plain'", "plain"),
        (rb'"it\'s"', "it's"),
        (rb"'\x41\n\t\\\101\q'", "A\n\t\\A\\q"),
        (rb"'caf\xc3\xa9'", "café"),
        (rb"'\xff\xfe'", b"\xff\xfe"),
    ],
)
def test_literals_of_python_2_are_text_where_they_can_be(literal, value):
    assert run(b"S" + literal + b"\n.") == value


def test_strings_of_python_2_that_are_no_text_stay_bytes():
    assert run(asm.raw_string(b"\x80\x81") + STOP) == b"\x80\x81"
    assert run(b"U\x03abc.") == "abc"


@pytest.mark.parametrize("name", ["UNICODE", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8"])
def test_text_in_every_form(name):
    form = {
        "UNICODE": asm.line_text,
        "SHORT_BINUNICODE": asm.short_text,
        "BINUNICODE": text,
        "BINUNICODE8": asm.text8,
    }[name]
    assert run_body(form("naïve 😀")) == "naïve 😀"


# -- the memo -----------------------------------------------------------------------------------


def test_memoize_counts_entries_not_indexes():
    body = text("a") + put(100) + POP + text("b") + MEMOIZE + POP + get(1)
    assert run_body(body) == pickle.loads(stream(body, protocol=4)) == "b"


def test_entries_out_of_order_are_all_found():
    order = [5, 0, 2**15, 1, 2, 300, 5, 3]
    body = b"".join(text(f"{at}.{n}") + put(at) + POP for n, at in enumerate(order))
    body += list_(*(get(at) for at in order))
    assert run_body(body) == pickle.loads(stream(body, protocol=4))


def test_the_largest_index_costs_nothing():
    assert run_body(text("a") + put(2**32 - 1) + POP + get(2**32 - 1)) == "a"


def test_an_entry_can_be_overwritten():
    assert run_body(text("a") + put(0) + POP + text("b") + put(0) + POP + get(0)) == "b"


def test_indexes_as_digits():
    assert run_body(text("a") + line_put(999_999_999) + POP + line_get(999_999_999)) == "a"


# -- what is not called -------------------------------------------------------------------------


def test_the_plain_builder_recognises_nothing():
    data = stream(call(global_("collections", "OrderedDict")))
    found = interpret(data, Builder()).root
    assert isinstance(found, ObjectValue)
    assert (found.function, found.arguments) == (Name("collections", "OrderedDict"), ())


def test_an_object_collects_what_it_is_given_in_order():
    body = call(global_("acme", "Box"), b"K\x01") + put(0)
    body += b"K\x02" + APPEND + MARK + b"K\x03K\x04e" + text("k") + NONE + SETITEM
    body += EMPTY_TUPLE + BUILD + NONE + BUILD
    found = run_body(body)
    assert found.arguments == (1,)
    assert (found.items, found.pairs, found.states) == ([2, 3, 4], [("k", None)], [(), None])


def test_an_object_made_by_a_thousand_others_can_be_shown():
    body = call(global_("acme", "Box")) + b")R" * 1000
    assert repr(run_body(body)) == "<<ObjectValue>, inert>"


def test_what_looked_like_an_enum_becomes_an_object_when_it_is_changed():
    body = call(global_("acme", "Box"), text("x")) + put(0) + NONE + BUILD
    found = run_body(asm.tuple_(body, get(0)))
    assert isinstance(found[0], ObjectValue)
    assert found[1] is found[0]


def test_the_same_name_is_the_same_value():
    body = asm.tuple_(global_("a", "b"), text("a") + text("b") + asm.STACK_GLOBAL)
    found = run_body(body)
    assert found[0] is found[1]


# -- keys ---------------------------------------------------------------------------------------


def test_keys_that_are_not_hashed_are_wrapped():
    body = EMPTY_DICT + MARK + asm.tuple_(b"K\x01", b"K\x02") + NONE + text("k") + NONE + SETITEMS
    first, second = run_body(body)
    assert isinstance(first, Key)
    assert (first.value, second) == ((1, 2), "k")


def test_of_a_key_given_twice_the_last_value_counts():
    body = EMPTY_DICT + MARK + text("k") + b"K\x01" + text("k") + b"K\x02" + SETITEMS
    assert run_body(body) == pickle.loads(stream(body)) == {"k": 2}


def test_keys_of_different_types_that_are_equal_are_one_as_in_python():
    value = {True: "a", 2.0: "b"}
    body = EMPTY_DICT + MARK + b"K\x01" + text("x") + asm.TRUE + text("a") + b"K\x02" + text("b")
    found = run_body(body + b"G@\0\0\0\0\0\0\0" + text("b") + SETITEMS)
    assert found == value


# -- malformed streams --------------------------------------------------------------------------

MALFORMED = {
    "nothing": (b"", "end without STOP"),
    "no STOP": (b"\x80\x02N", "end without STOP"),
    "empty stack at STOP": (b"\x80\x02.", "0 values"),
    "two values at STOP": (b"NN.", "2 values"),
    "mark at STOP": (b"N(.", "1 values"),
    "data after STOP": (b"N.N", "follow its STOP"),
    "two STOPs": (b"N..", "follow its STOP"),
    "unknown opcode": (b"\xff.", "0xff, which is no opcode"),
    "zero": (b"\0N.", "0x00, which is no opcode"),
    "protocol 6": (b"\x80\x06N.", "its protocol is 6"),
    "protocol 255": (b"\x80\xffN.", "its protocol is 255"),
    "protocol in the middle": (b"N\x80\x02.", "in the middle"),
    "next buffer": (b"\x97.", "not in the file"),
    "read-only buffer": (b"N\x98.", "not in the file"),
    "pop from nothing": (b"0.", "more from the stack"),
    "pop across a mark": (b"N(\x85.", "more from the stack"),
    "mark that is not there": (b"Nt.", "more from the stack"),
    "memo entry that is not there": (b"h\x05.", "no memo entry 5"),
    "negative memo entry": (b"Ng-1\n.", "no memo index"),
    "negative memo index": (b"Np-1\n.", "no memo index"),
    "memo index of letters": (b"Npx\n.", "no memo index"),
    "memo index too long": (b"Np99999999999\n.", "no memo index"),
    "remembering nothing": (b"q\0N.", "more from the stack"),
    "duplicating nothing": (b"2.", "more from the stack"),
    "text 2**40 long": (b"\x8d" + (2**40).to_bytes(8, "little") + b"a.", "does not fit"),
    "bytes one too long": (b"B\x03\0\0\0ab", "does not fit"),
    "bytearray too long": (b"\x96" + b"\xff" * 8 + b".", "does not fit"),
    "frame 2**40 long": (b"\x95" + (2**40).to_bytes(8, "little") + b"N.", "does not fit"),
    "operand cut off": (b"\x80\x02J\x01", "end without STOP"),
    "line cut off": (b"I12", "middle of a line"),
    "text that is no UTF-8": (b"X\x01\0\0\0\xff.", "not UTF-8"),
    "escape that is none": (b"V\\u12\n.", "malformed"),
    "string without quotes": (b"Sabc\n.", "not in quotes"),
    "string with one quote": (b"S'\n.", "not in quotes"),
    "integer of letters": (b"Iabc\n.", "no integer"),
    "integer with underscores": (b"I1_000\n.", "no integer"),
    "integer of 401 digits": (b"I" + b"9" * 401 + b"\n.", "no integer"),
    "float of letters": (b"Fnope\n.", "no float"),
    "float with underscores": (b"F1_0.0\n.", "no float"),
    "key without a value": (b"}(K\x01u.", "no value"),
    "dict of three": (b"(NNNd.", "no value"),
    "append to a tuple": (b")Na.", "added to a tuple"),
    "append to a dict": (b"}Na.", "added to a dict"),
    "append to a name": (b"cos\nsystem\nNa.", "added to a Name"),
    "set in a list": (b"]NNs.", "set in a list"),
    "set in a tuple": (b")NNs.", "set in a tuple"),
    "set in a set": (b"\x8fNNs.", "set in a set"),
    "set in a name": (b"cos\nsystem\nNNs.", "set in a Name"),
    "add to a list by ADDITEMS": (b"](N\x90.", "added to a list"),
    "state of a tuple": (b")Nb.", "state of a tuple"),
    "state of a dict": (b"}Nb.", "state of a dict"),
    "state of a name": (b"cos\nsystem\nNb.", "state of a Name"),
    "state of a text": (b"X\x01\0\0\0aNb.", "state of a str"),
    "call of a number": (b"K\x01)R.", "a int is called"),
    "call of nothing": (b"N)R.", "is called"),
    "call with a list": (b"cos\nsystem\n]R.", "called with a list"),
    "call with a name": (b"cos\nsystem\ncos\nsystem\nR.", "called with a Name"),
    "keywords that are none": (b"cos\nsystem\n)]\x92.", "keywords of a list"),
    "object of nothing": (b"(o.", "more from the stack"),
    "name of numbers": (b"K\x01K\x02\x93.", "not of two texts"),
    "name of texts and bytes": (b"C\x01aX\x01\0\0\0b\x93.", "not of two texts"),
    "extension 0": (b"\x82\0.", "no code"),
    "negative extension": (b"\x84\xff\xff\xff\xff.", "no code"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_stream_is_refused_in_words(name):
    data, words = MALFORMED[name]
    with pytest.raises(PickleError, match=words.replace("(", r"\(")):
        run(data)


def test_an_error_says_where_and_at_what():
    with pytest.raises(PickleError, match="the pickle's BINGET at byte 3: there is no") as caught:
        run(b"\x80\x02Nh\x05.")
    assert caught.value.at == 3


def test_a_stream_cut_anywhere_is_said_to_be_cut():
    data = pickle.dumps([{"a": (1, 2.5, "x" * 300)}, b"y", {1, 2}, 2**90], 4)
    for end in range(len(data)):
        with pytest.raises(TruncatedError):
            interpret(data[:end], Builder())


@pytest.mark.parametrize(
    "body", [get(7), get(2**24), asm.ext(7), asm.ext(2**8, 2), asm.ext(2**24, 4)]
)
def test_an_operand_that_is_cut_off_is_not_taken_for_a_wrong_one(body):
    for end in range(len(body)):
        with pytest.raises(TruncatedError):
            interpret(body[:end], Builder())


def test_what_follows_can_be_left_alone():
    program = interpret(b"K\x01.K\x02.", Builder())
    assert (program.root, program.end) == (1, 3)


@pytest.mark.parametrize("length", [0, 1, 3, 8])
def test_frames_mean_nothing_as_long_as_they_fit(length):
    assert run(b"\x80\x04\x95" + length.to_bytes(8, "little") + b"(NNNNNNt.") == (None,) * 6


# -- budgets ------------------------------------------------------------------------------------

BUDGETS = {
    "ops": (b"N0" * 30_000 + b"N", {"ops": 50_000}),
    "stack": (b"N" * 30_000, {"stack": 10_000}),
    "stack, by doubling": (b"N" + b"2" * 30_000, {"stack": 10_000}),
    "stack, under marks": (b"(N" * 9_000, {"stack": 5_000}),
    "marks": (b"(" * 30_000, {"marks": 10_000}),
    "memo": (b"N" + b"\x94" * 30_000, {"memo": 10_000}),
    "memo, scattered": (
        b"N" + b"".join(b"r" + (7 * n).to_bytes(4, "little") for n in range(30_000)),
        {"memo": 10_000},
    ),
    "objects": (EMPTY_LIST + b"]a" * 30_000, {"objects": 10_000}),
    "text_bytes": (text("x" * 1000), {"text_bytes": 999}),
    "text_bytes, in a line": (asm.line_text("x" * 1000), {"text_bytes": 999}),
    "integer_bits": (b"\x8a\x81" + bytes(129), {}),
    "integer_bits, in digits": (b"I" + str(2**1025).encode() + b"\n", {}),
    "integer_bits, long": (b"\x8b\x81\0\0\0" + bytes(129), {}),
    "pickle_bytes": (b"N0" * 100 + b"N", {"pickle_bytes": 100}),
}


@pytest.mark.parametrize("name", BUDGETS)
def test_a_spent_budget_is_named(name):
    body, limits = BUDGETS[name]
    with pytest.raises(LimitError) as caught:
        run_body(body, **limits)
    assert caught.value.limit == name.split(",")[0]
    assert caught.value.found > caught.value.allowed


def test_states_of_one_object_take_time_in_proportion_to_their_number():
    box = call(global_("acme", "Box"), b"K\x01")
    few, many = (stream(box + (NONE + BUILD) * count) for count in (10_000, 40_000))
    # four times as many: linear is 4, quadratic 16
    assert seconds(lambda: run(many)) < 8 * seconds(lambda: run(few))


def test_objects_and_memo_are_bounded_by_the_size_of_the_pickle():
    assert Limits().for_pickle(0) == (500_000, 500_000)
    assert Limits().for_pickle(6_000_000) == (1_500_000, 1_500_000)
    assert Limits().for_pickle(2**30) == (20_000_000, 5_000_000)


def check_memory(body: bytes, objects: int = 20_000) -> None:
    """Checks that a stream spends a budget of objects, and no more memory than `Limits` says."""
    data = stream(body, protocol=4)
    tracemalloc.start()
    try:
        with pytest.raises(LimitError) as caught:
            run(data, Limits(objects=objects))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert caught.value.limit == "objects"
    # 64 MiB for the 500,000 that are free
    assert peak < objects * 64 * 2**20 / 500_000 + 20 * len(data)


NUMBERS = list_(*(b"M" + n.to_bytes(2, "little") for n in range(20_000)))
BIG_ENDIAN = call(global_("numpy", "dtype"), text("i8"), NONE, NONE)
BIG_ENDIAN += asm.tuple_(b"K\x03", text(">"), NONE, NONE, NONE) + BUILD

# Calls whose values are copies of an argument, or of some of it
COPYING = {
    "bytes": (global_("_codecs", "encode"), text("x" * 100_000), text("latin1")),
    "bytearray": (global_("builtins", "bytearray"), asm.binary(b"x" * 100_000)),
    "set": (global_("builtins", "set"), NUMBERS),
    "set of tuples": (global_("builtins", "set"), list_(*[EMPTY_TUPLE] * 1_000)),
    "frozenset": (global_("builtins", "frozenset"), NUMBERS),
    "OrderedDict": (
        global_("collections", "OrderedDict"),
        list_(*(asm.tuple_(asm.integer(n), NONE) for n in range(10_000))),
    ),
    "torch.Size": (global_("torch", "Size"), asm.ints((1,) * 50_000)),
    "torch.device": (global_("torch", "device"), text("x" * 100_000 + ":1")),
    "tensor of ours": (global_("aoserial", "_rebuild"), text("T"), b"K\x01", *[NONE] * 100_000),
    "name": (global_("builtins", "getattr"), global_("a", "b"), text("x" * 100_000)),
    "array": (
        global_("numpy.core.numeric", "_frombuffer"),
        asm.binary(bytes(80_000)),
        BIG_ENDIAN,
        asm.ints((10_000,)),
        text("C"),
    ),
}


@pytest.mark.parametrize("name", COPYING)
def test_what_a_call_copies_from_an_argument_is_counted(name):
    function, *arguments = COPYING[name]
    body = function + put(0) + POP + asm.tuple_(*arguments) + put(1) + POP + EMPTY_LIST
    check_memory(body + (get(0) + get(1) + REDUCE + APPEND) * 100)


ENUM = call(global_("a", "b"), text("x")) + put(0) + (POP + NONE + MEMOIZE) * 80 + POP
ORDERED = call(global_("collections", "OrderedDict"))

# Much made of few bytes
DENSE = {
    "tuples in a frozenset": MARK + EMPTY_TUPLE * 90_000 + asm.FROZENSET,
    "tuples as keys": EMPTY_DICT + (MARK + (EMPTY_TUPLE + NONE) * 6_000 + SETITEMS) * 9,
    "tuples as keys of another": ORDERED + (MARK + (EMPTY_TUPLE + NONE) * 6_000 + SETITEMS) * 9,
    "pairs of an object": call(global_("a", "b")) + (MARK + NONE * 9_000 + SETITEMS) * 9,
    "items of what seemed an enum": ENUM + EMPTY_LIST + (get(0) + NONE + APPEND * 2) * 30_000,
    "states of objects": global_("a", "b")
    + put(0)
    + POP
    + EMPTY_LIST
    + (get(0) + b")R)ba") * 30_000,
}


@pytest.mark.parametrize("name", DENSE)
def test_what_is_put_into_containers_and_objects_is_counted(name):
    check_memory(DENSE[name])


def test_the_collector_is_left_as_it_was(monkeypatch):
    import gc

    for enabled in (True, False):
        (gc.enable if enabled else gc.disable)()
        run_body(NONE)
        with pytest.raises(PickleError):
            run(b"\xff")
        assert gc.isenabled() is enabled
    gc.enable()


def test_unused_helpers_of_the_assembler_make_what_they_say():
    assert pickle.loads(stream(asm.dict_(text("a"), asm.ints((1, -2))))) == {"a": (1, -2)}
    assert NEWOBJ + REDUCE + TUPLE == b"\x81Rt"
