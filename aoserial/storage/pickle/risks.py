"""How much a name in a pickle is to be feared: for reports. Nothing is decided by it. Torch-free.

A list of what is dangerous is never complete, so all that is not known to be harmless counts as
running code; the list here only tells what was surely put there to do harm.
"""

from __future__ import annotations

import re
from enum import Enum

from aoserial.storage.pickle.dtypes import typed_storage
from aoserial.storage.pickle.plain import STATEFUL, constant
from aoserial.storage.pickle.recognise import KNOWN
from aoserial.storage.pickle.values import Name


class Risk(Enum):
    """What calling a name comes to."""

    KNOWN = "makes plain data"
    UNKNOWN = "runs code of some library"
    DANGEROUS = "runs what the file wants"


_HARMLESS = frozenset(
    {
        ("builtins", "dict"),
        ("builtins", "float"),
        ("builtins", "int"),
        ("builtins", "list"),
        ("builtins", "object"),
        ("builtins", "slice"),
        ("builtins", "str"),
        ("builtins", "tuple"),
        ("collections", "Counter"),
        ("collections", "defaultdict"),
        ("collections", "deque"),
        ("copyreg", "_reconstructor"),
        ("datetime", "datetime"),
        ("datetime", "timedelta"),
        ("numpy", "ndarray"),
        ("torch", "Tensor"),
        ("torch", "Generator"),
        ("torch.nn.parameter", "Buffer"),
        ("torch.nn.parameter", "Parameter"),
    }
)

_SCHEMES = re.compile(r"per_(?:tensor|channel)_(?:affine|symmetric)(?:_float_qparams)?")

# A module and everything in it, or one name of a module
_DANGEROUS = re.compile(
    r"""(?:
    # processes, files, the network
    os|posix|nt|subprocess|_posixsubprocess|commands|popen2|pty|shutil|tempfile|sys|signal|socket
    |ssl|http|httplib|urllib|urllib2|requests|aiohttp|ftplib|smtplib|poplib|imaplib|telnetlib|nntplib
    |xmlrpc|webbrowser|asyncio|multiprocessing|threading|_thread|concurrent|ctypes|_ctypes|cffi
    |io|_io|fileinput|pathlib\.Path|mmap|sqlite3|_sqlite3|logging|zipfile|tarfile|bz2|lzma|gzip
    # code, names and attributes
    |builtins\.(?:eval|exec|execfile|compile|__import__|getattr|setattr|delattr|open|file|input
        |breakpoint|globals|locals|vars|apply|help|map|filter|memoryview|type)
    |code|codeop|imp|importlib|_frozen_importlib\w*|runpy|pkgutil|pydoc|zipimport|inspect|types|ast
    |operator|_operator|functools\.(?:reduce|cmp_to_key)|_functools\.reduce|sysconfig|gc|weakref
    |bdb|pdb|cProfile|profile|_lsprof|timeit|trace|doctest|unittest|test|site|venv|ensurepip|pip
    |distutils|setuptools|lib2to3|idlelib|turtle\w*|antigravity|this|readline|cmd|platform|getpass
    # pickles inside the pickle
    |pickle|_pickle|cPickle|dill|cloudpickle|joblib|marshal|shelve|copyreg\.(?!_reconstructor\Z).*
    # ways through torch, NumPy and others
    |torch\.(?:hub|jit|load|save|serialization\.(?!_get_layout\Z).*|package|_inductor|_dynamo|fx
        |utils\.(?:collect_env|bottleneck|cpp_extension|_config_module|model_zoo|file_baton)
        |distributed|multiprocessing|testing|onnx|library|ops|_C|export|compile)
    |numpy\.(?:testing|f2py|distutils|load|loads|loadtxt|save|fromfile|memmap|genfromtxt|ctypeslib)
    |pandas\.(?:read_pickle|eval|io)|tensorflow|keras|transformers\.(?:pipeline|AutoModel.*)
    )(?:\..*)?""",
    re.VERBOSE | re.DOTALL,
)


def risk_of(name: Name) -> Risk:
    """What calling that name comes to."""
    key = (name.module, name.name)
    if key == ("builtins", "getattr"):
        return Risk.DANGEROUS
    if (
        key in _HARMLESS
        or key in KNOWN
        or key in STATEFUL
        or constant(name) is not None
        or typed_storage(*key) is not None
        or (name.module == "torch" and _SCHEMES.fullmatch(name.name))
    ):
        return Risk.KNOWN
    return Risk.DANGEROUS if _DANGEROUS.fullmatch(name.path) else Risk.UNKNOWN
