"""What a file's pickles would import and call under plain `torch.load`. Torch-free; runs nothing.

The interpreter runs the pickles into inert values as always; a builder keeps a list on the way.
What came before an error in a stream is on the list, too: pickle would have run it by then.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from aoserial.errors import AoserialError, ContainerError, LimitError, locating
from aoserial.storage.collecting import collector_paused
from aoserial.storage.pickle.legacy import run_plain
from aoserial.storage.pickle.limits import Limits
from aoserial.storage.pickle.reader import CONTAINERS
from aoserial.storage.pickle.recognise import Builders, Recogniser, Resolver, python3_name
from aoserial.storage.pickle.risks import Risk, risk_of
from aoserial.storage.pickle.values import Name, ObjectValue, Reference, Value
from aoserial.storage.sniff import SNIFF_BYTES, pickle_container
from aoserial.storage.source import Source

Known = Callable[[Name], bool]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """Something a pickle asks for.

    Attributes:
        what: `import`, `call`, `state` (what `__setstate__` would be given), `extension` (an entry
            of copyreg's registry) or `reference` (a persistent id that is no storage).
        path: the dotted name that it is about.
        risk: what that comes to.
        stream: which pickle of the file, from 0.
        at: the position of the first in it.
        count: how often.
    """

    what: str
    path: str
    risk: Risk
    stream: int
    at: int
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What was found in a file.

    Attributes:
        container: `zip`, `legacy`, `tar`, or `pickle` for a bare one.
        findings: in the order of the file.
        fault: why the reading ended early; None when all was read.
    """

    container: str
    findings: tuple[Finding, ...]
    fault: AoserialError | None

    @property
    def runs_code(self) -> bool:
        """Whether `torch.load(weights_only=False)` would run code that is not known to be harmless.

        Importing a module runs it, so a name alone is enough.
        """
        return any(finding.risk is not Risk.KNOWN for finding in self.findings)


def scan(
    path: str | os.PathLike[str],
    *,
    limits: Limits = Limits(),  # noqa: B008 - frozen
    known: Known = lambda _: False,
) -> Report:
    """Lists what the pickles of a file would import and call.

    Args:
        path: of any file; what is no archive is taken for pickles, as torch does.
        limits: budgets.
        known: says of further names that they are harmless.

    Raises:
        PathError: it is missing, or not a regular file.
        ContainerError: no pickle could be found in it.
        LimitError: a budget was spent before anything was found.
    """
    scanners: list[Scanner] = []
    builder = partial(Scanner, scanners, known)
    fault = None
    with Source.open(path, mapped=False) as source, locating(file=source.path), collector_paused():
        head = source.pread(0, min(SNIFF_BYTES, source.size))
        try:
            container = pickle_container(head)
        except ContainerError as error:
            container, unknown = "pickle", error
        try:
            if container == "pickle":
                _run_bare(source, builder, limits)
            else:
                CONTAINERS[container](source, limits, builder)
        except AoserialError as error:
            fault = error.locate(file=source.path)
        findings = tuple(
            finding for number, each in enumerate(scanners) for finding in each.findings(number)
        )
        if fault is not None and not findings:
            # nothing of it is a pickle that does anything: what is it, then?
            told = container != "pickle" or isinstance(fault, LimitError)
            raise fault if told else unknown
    return Report(container=container, findings=findings, fault=fault)


def _run_bare(source: Source, builder: Builders, limits: Limits) -> None:
    """Runs the pickles that follow one another in a file."""
    at = count = 0
    while at < source.size:
        _, at = run_plain(source, at, source.size, builder, limits)
        count += 1
        limits.check("entries", count)


class Scanner(Recogniser):
    """A recogniser that lists what it is asked for."""

    def __init__(
        self, scanners: list[Scanner], known: Known, resolve: Resolver, limits: Limits
    ) -> None:
        super().__init__(resolve, limits)
        self._scanners = scanners
        self._known = known
        # by what and path: risk, first position, count
        self._found: dict[tuple[str, str], tuple[Risk, int, int]] = {}
        scanners.append(self)

    def forget(self) -> None:
        self._scanners.remove(self)

    def findings(self, stream: int) -> list[Finding]:
        """What was found, in order of the first of each."""
        return [
            Finding(what=what, path=path, risk=risk, stream=stream, at=at, count=count)
            for (what, path), (risk, at, count) in self._found.items()
        ]

    def name(self, module: str, name: str) -> Value:
        self._add("import", python3_name(module, name))
        return super().name(module, name)

    def extension(self, code: int) -> Value:
        self._add("extension", Name("copyreg._inverted_registry", str(code)))
        return super().extension(code)

    def reference(self, id: Value) -> Value:  # noqa: A002 - pickle's own word
        found = super().reference(id)
        if type(found) is Reference:
            self._add("reference", Name("persistent_load", type(id).__name__))
        return found

    def call(self, kind: str, function: Value, arguments: Value, keywords: Value = None) -> Value:
        self._add("call", _named(function))
        return super().call(kind, function, arguments, keywords)

    def set_state(self, target: Value, state: Value) -> Value:
        changed = super().set_state(target, state)
        if type(changed) is ObjectValue:
            self._add("state", _named(changed))
        return changed

    def _add(self, what: str, name: Name) -> None:
        risk, at, count = self._found.get((what, name.path), (None, self.at, 0))
        if risk is None:
            risk = Risk.KNOWN if self._known(name) else risk_of(name)
        self._found[what, name.path] = (risk, at, count + 1)


def _named(value: Value) -> Name:
    """The name of what is called: of an object, that of its class."""
    origin = value.origin if type(value) is ObjectValue else value
    return origin if type(origin) is Name else Name("builtins", type(origin).__name__)
