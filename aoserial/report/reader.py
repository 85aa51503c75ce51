"""One reader of golden files, as a process: run by path, with any Python that has torch.

    PYTHON -I reader.py PACKAGE [--path FOLDER]... [--import MODULE]...

PACKAGE is `aoserial` or `torchao`, or `any`: the torchao that there is, else the aoserial. It says
in a line of JSON what it is, then answers each line `{"path": …, "expected": …}` with a line

    {"outcome": "equal" | "different" | "refused" | "crashed", "reason": …, "told": {…}}

and `types` and `becomes`, if it is aoserial.

It imports nothing of aoserial unless that is the reader: it has to run beside any release.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import pkgutil
import platform
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

_LONGEST = 600  # of a reason: an error can list a thousand tensors
_COLOUR = re.compile("\x1b\\[[0-9;]*m")
# where torch.load says what is wrong, behind a paragraph that is the same for every file
_AT_LAST = "WeightsUnpickler error: "

torch: Any = importlib.import_module("torch")


def main(arguments: list[str]) -> None:
    # the protocol's own stream: whatever packages print goes elsewhere
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    package, *rest = arguments
    options = list(zip(rest[::2], rest[1::2]))  # noqa: B905 - Pythons before 3.10
    sys.path[:0] = [value for name, value in options if name == "--path"]
    if package == "any":
        package = "torchao" if importlib.util.find_spec("torchao") else "aoserial"
    readers: dict[str, Any] = {"aoserial": ByAoserial, "torchao": ByTorchao}
    reader = readers[package]()
    for name, value in options:
        if name == "--import":
            importlib.import_module(value)
    hello = {"package": package, "version": reader.version, "torch": torch.__version__}
    print(json.dumps({**hello, "python": platform.python_version()}), file=answers, flush=True)
    for line in sys.stdin:
        job = json.loads(line)
        told = reader.read(job["path"], job["expected"])
        told["reason"] = _plain(told["reason"], job["path"])
        print(json.dumps(told), file=answers, flush=True)


def _plain(reason: str, path: str) -> str:
    """A reason without colours, torch's advice and this machine's paths, and not too long."""
    reason = _COLOUR.sub("", reason)
    advice, found, told = reason.partition(_AT_LAST)
    if found:
        reason = f"{advice.partition(': ')[0]}: {told}"
    for folder in (os.path.dirname(path) + os.sep, sys.prefix + os.sep, os.getcwd() + os.sep):
        reason = reason.replace(folder, "")
    return reason if len(reason) <= _LONGEST else reason[:_LONGEST] + " …"


def _error(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


# -- what was written -----------------------------------------------------------------------------


def expectation(path: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of tensors by name, and plain tensors, alone or inside quantized ones."""
    if path.endswith(".safetensors"):
        from safetensors.torch import load_file

        held = load_file(path)
        prefix = "value."
        return {n[len(prefix) :]: t for n, t in held.items() if n.startswith(prefix)}, {}
    held = torch.load(path, weights_only=True)
    return held["dequantized"], held["inner"]


def same(left: Any, right: Any) -> bool:
    """Whether two plain tensors agree in dtype, shape and every bit."""
    if left.dtype != right.dtype or left.shape != right.shape:
        return False
    flat = (t.detach().contiguous().reshape(-1).view(torch.uint8) for t in (left, right))
    return bool(torch.equal(*flat))


def verdict(differing: list[str], count: int) -> dict[str, Any]:
    if not count:
        return {"outcome": "different", "reason": "nothing that was written is there"}
    if differing:
        return {"outcome": "different", "reason": f"not as written: {', '.join(differing)}"}
    return {"outcome": "equal", "reason": ""}


# -- aoserial -------------------------------------------------------------------------------------


class ByAoserial:
    """`aoserial.load`, of a release or of a checkout. What it does not tell is tried out."""

    def __init__(self) -> None:
        self.library = importlib.import_module("aoserial")
        self.version = self.library.__version__

    def read(self, path: str, expected: str) -> dict[str, Any]:
        kinds = self._kinds(path)
        first = self._try(path, expected, {})
        if first["outcome"] != "equal":
            for question in self._questions(path, first["reason"]):
                for answer in question.answers:
                    told = {question.name: answer}
                    again = self._try(path, expected, told)
                    if again["outcome"] == "equal":
                        return {**again, **kinds, "told": told}
        return {**first, **kinds, "told": {}}

    def _try(self, path: str, expected: str, assume: dict[str, str]) -> dict[str, Any]:
        try:
            state = self.library.load(path, assume=assume)
        except self.library.AoserialError as error:
            return {"outcome": "refused", "reason": _error(error)}
        except Exception as error:  # none of ours: a fault of the reader
            return {"outcome": "crashed", "reason": _error(error)}
        values, plain = expectation(expected)
        wanted = {name.replace("/", "."): tensor for name, tensor in {**plain, **values}.items()}
        lacking = [name for name in values if name.replace("/", ".") not in state]
        both = [name for name in state if name in wanted]
        try:
            differing = [name for name in both if not same(self._value(state[name]), wanted[name])]
        except self.library.AoserialError as error:
            return {"outcome": "refused", "reason": _error(error)}
        return verdict(lacking + differing, len(both))

    def _value(self, tensor: Any) -> Any:
        quantized = isinstance(tensor, self.library.VersionedTensor)
        return tensor.dequantize() if quantized else tensor

    def _questions(self, path: str, reason: str) -> list[Any]:
        """The questions that the file leaves open."""
        from aoserial.migrations import STEPS

        open_ = set()
        try:
            with self.library.open(path) as checkpoint:
                open_ = {pair.partition("=")[0] for pair in checkpoint.report.assumed}
        except self.library.AoserialError:
            pass
        return [q for q in STEPS.questions.values() if q.name in open_ or repr(q.name) in reason]

    def _kinds(self, path: str) -> dict[str, Any]:
        """The types in a file, with their versions, and what they become."""
        try:
            rows = self.library.inspect(path).types
        except self.library.AoserialError:
            return {"types": [], "becomes": []}
        quantized = [row for row in rows if row.version is not None]
        return {
            "types": sorted({f"{row.type}@{row.version}" for row in quantized}),
            "becomes": sorted({self._family(row) for row in quantized}),
        }

    @staticmethod
    def _family(row: Any) -> str:
        if row.becomes:
            return str(row.becomes.partition("@")[0])
        return str(row.type) if row.head is not None and not row.problem else "inert"


# -- torchao --------------------------------------------------------------------------------------


class ByTorchao:
    """`torch.load(weights_only=True)`, or torchao's own reading of safetensors files.

    All of its modules are imported, so that everything it allows is allowed. A tensor that has no
    `dequantize` is held against what it was made of: it is the most that this reader can do.
    """

    def __init__(self) -> None:
        torchao = importlib.import_module("torchao")
        self.version = torchao.__version__.partition("+")[0]
        for module in pkgutil.walk_packages(torchao.__path__, "torchao.", onerror=lambda _: None):
            if not any(word in module.name for word in ("test", "benchmark", "__main__")):
                try:
                    importlib.import_module(module.name)
                except BaseException:  # modules for other hardware raise anything
                    continue

    def read(self, path: str, expected: str) -> dict[str, Any]:
        try:
            state = self._load(path)
            values, plain = expectation(expected)
            tensors = dict(_leaves(state))
            lacking = sorted(values.keys() - tensors.keys())
            both = [name for name in tensors if name in values or name in plain or _inner(name,
                    plain)]  # fmt: skip
            differing = [name for name in both if not _held(tensors[name], name, values, plain)]
        except Exception as error:  # whatever it is, the file is not read
            return {"outcome": "refused", "reason": _error(error)}
        return verdict(lacking + differing, len(both) + len(lacking))

    @staticmethod
    def _load(path: str) -> Any:
        if not path.endswith(".safetensors"):
            return torch.load(path, weights_only=True)
        from safetensors import safe_open

        support = importlib.import_module("torchao.prototype.safetensors.safetensors_support")
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
            state, left = support.unflatten_tensor_state_dict(tensors, file.metadata())
        return {**left, **state}


_PLAIN = (torch.Tensor, torch.nn.Parameter)
_OWN_WAYS = ("get_original_weight", "get_plain", "dequantize")


def _inner(name: str, plain: dict[str, Any]) -> bool:
    return any(path.startswith(f"{name}.") for path in plain)


def _leaves(value: Any, path: str = "") -> Iterable[tuple[str, Any]]:
    """The tensors of nested dicts and lists, by path."""
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    if isinstance(value, (list, tuple)):
        value = dict(enumerate(value))
    items = value.items() if isinstance(value, dict) else ()
    return chain.from_iterable(
        _leaves(each, f"{path}/{key}" if path else str(key)) for key, each in items
    )


def _inside(tensor: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The plain tensors inside a tensor, however deep."""
    if type(tensor) in _PLAIN:
        yield path, tensor
        return
    for name, held in vars(tensor).items():
        for deeper, each in _leaves(held, f"{path}.{name}"):
            yield from _inside(each, deeper)


def _held(tensor: Any, name: str, values: dict[str, Any], plain: dict[str, Any]) -> bool:
    """Whether a tensor stands for what the writing release had."""
    if type(tensor) in _PLAIN:
        wanted = values.get(name, plain.get(name))
        return wanted is None or same(tensor, wanted)
    for method in _OWN_WAYS:
        own = getattr(type(tensor), method, None)
        if own not in (None, torch.Tensor.dequantize) and name in values:
            return same(getattr(tensor, method)(), values[name])
    return all(path not in plain or same(each, plain[path]) for path, each in _inside(tensor, name))


if __name__ == "__main__":
    main(sys.argv[1:])
