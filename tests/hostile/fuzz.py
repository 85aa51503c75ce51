"""`make fuzz`: hundreds of thousands of broken pickles and files; none may do more than be refused.

Arguments: how many streams, how many files, the seed. Prints what became of them; what became of
one that it should not is kept in a file, and the exit status is 1.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from support import mutations

from aoserial.errors import AoserialError, escape
from aoserial.record.pickled import decode_pickle
from aoserial.storage import Source
from aoserial.storage.pickle import Limits, PickleFile, children, named_tensors, scan
from aoserial.storage.pickle.interpreter import interpret_all
from aoserial.storage.pickle.paths import check_depth
from aoserial.storage.pickle.recognise import Recogniser
from aoserial.storage.pickle.references import Storages, find_in
from aoserial.storage.pickle.storages import StorageRef
from aoserial.torchao.pickled import identify

LIMITS = Limits(ops=200_000, tensors=10_000)

# A stream of a few thousand bytes that takes this long has found something quadratic
RUNAWAY_SECONDS = 2.0

# Reading files opens and maps them; all else that Python reports would be the payload's doing
ALLOWED = {"open", "mmap.__new__", "builtins.id", "object.__getattr__"}


class Watch:
    """Keeps the audit events while it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self.events: Counter[str] = Counter()
        sys.addaudithook(self)

    def __call__(self, event: str, _: tuple[object, ...]) -> None:
        if self.armed and event not in ALLOWED:
            self.events[event] += 1


class Failure(Exception):  # noqa: N818 - a finding
    """Something happened that should not."""


def try_stream(data: bytes, storages: dict[str, StorageRef]) -> str:
    recogniser = Recogniser(Storages(find_in(storages)), LIMITS)
    try:
        tree = interpret_all(data, recogniser, LIMITS).root
        check_depth(tree, LIMITS)
        walk(tree)
    except AoserialError as error:
        str(error)
        return type(error).__name__
    return "accepted"


def try_file(path: Path) -> str:
    try:
        scan(path, limits=LIMITS)
    except AoserialError as error:
        str(error)
    try:
        with PickleFile.open(path, mapped=False, limits=LIMITS) as file:
            walk(file.tree)
            file.verify()
    except AoserialError as error:
        str(error)
        return type(error).__name__
    return "accepted"


def walk(tree: object) -> None:
    """Looks at everything in a tree, shows it, and makes records of its tensors."""
    for group in decode_pickle(named_tensors(tree, LIMITS)).catalog.groups:
        repr(identify(group.template))
    seen: set[int] = set()
    waiting = [tree]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen.add(id(value))
            waiting.extend(children(value))
            if not isinstance(value, dict | list | tuple | set | frozenset):
                repr(value)


def run(streams: int, files: int, seed: int, folder: Path) -> Counter[str]:
    """Tries them all.

    Raises:
        Failure: with what was wrong; the culprit is in `culprit.bin` in the folder.
    """
    outcomes: Counter[str] = Counter()
    place = folder / "storages.bin"
    place.write_bytes(b"".join(mutations.STORAGES.values()))
    at, storages = 0, {}
    source = Source.open(place, mapped=False)
    for key, data in mutations.STORAGES.items():
        storages[key] = StorageRef(source, key, at, len(data))
        at += len(data)
    path = folder / "model.pt"
    try_stream(mutations.seeds()[0], storages)
    escape("\x1b")  # imports its codec when first used
    watch = Watch()
    for data in mutations.streams(streams, seed):
        outcomes[f"stream {watched(watch, data, folder, try_stream, data, storages)}"] += 1
    for data in mutations.files(files, seed):
        path.write_bytes(data)
        outcomes[f"file {watched(watch, data, folder, try_file, path)}"] += 1
    source.close()
    return outcomes


def watched(watch: Watch, data: bytes, folder: Path, function, *arguments: object) -> str:
    before = set(sys.modules)
    start = time.process_time()
    watch.armed = True
    try:
        outcome = function(*arguments)
        problem = ""
    except Exception as error:
        problem = f"{type(error).__name__}: {error}"
    finally:
        watch.armed = False
    took = time.process_time() - start
    if not problem and watch.events:
        problem = f"audit events: {watch.events}"
    if not problem and set(sys.modules) != before:
        problem = f"modules: {sorted(set(sys.modules) - before)}"
    if not problem and took > RUNAWAY_SECONDS:
        problem = f"took {took:.1f} s"
    if problem:
        (folder / "culprit.bin").write_bytes(data)
        raise Failure(f"{problem}; {folder / 'culprit.bin'} did it")
    return outcome


def main(streams: int, files: int, seed: int) -> int:
    folder = Path(tempfile.mkdtemp(prefix="aoserial-fuzz-"))
    start = time.time()
    try:
        outcomes = run(streams, files, seed, folder)
    except Failure as failure:
        print(f"seed {seed}: {failure}", file=sys.stderr)
        return 1
    print(f"seed {seed}: {streams} streams and {files} files in {time.time() - start:.0f} s")
    for outcome, count in sorted(outcomes.items()):
        print(f"  {count:8d} {outcome}")
    return 0


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
