"""Opens malicious files under an audit hook and reports, as JSON, whatever happened meanwhile.

Run in a process of its own: an audit hook cannot be taken off, and what a payload did would stay.
Arguments: a folder to work in; `all` for every container around every payload; `alive` for the
way through `aoserial.open`, `load`, `plan` and `verify`, with torch.
"""

from __future__ import annotations

import copyreg
import json
import pickle
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from support import containers, pickle_assembler

import aoserial
import aoserial.errors
from aoserial.checkpoint.archives import open_archive
from aoserial.storage.pickle import PickleFile, Risk, children, named_tensors, scan
from aoserial.storage.pickle.limits import Limits

EXPECTED = (aoserial.errors.FormatError, aoserial.errors.LimitError)

# What reading a file is made of
ALLOWED = {"mmap.__new__", "builtins.id"}


class Watch:
    """The audit hook: keeps what happens while it is armed."""

    def __init__(self) -> None:
        self.armed = False
        self.file = ""
        self.events: Counter[str] = Counter()

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self.armed or event in ALLOWED:
            return
        if event == "open" and arguments and arguments[0] == self.file:
            return
        self.events[f"{event} {arguments!r:.80}"] += 1


def fill_extension_cache() -> None:
    """Has pickle itself look codes up, after which it no longer asks anybody: it just uses them."""
    for code in (240, 999, 70_000):
        copyreg.add_extension("os", f"system{code}", code)
    copyreg.add_extension("os", "system", 250)
    pickle.loads(pickle_assembler.stream(pickle_assembler.ext(250)))


def payloads(canary: str) -> list[tuple[str, bytes]]:
    found = list(pickle_assembler.gadgets(canary))
    for width, codes in ((1, (1, 240, 250)), (2, (999,)), (4, (70_000,))):
        for code in codes:
            body = pickle_assembler.ext(code, width) + pickle_assembler.tuple_(
                pickle_assembler.text(f"touch {canary}")
            )
            found.append((f"extension {code} in {width} bytes", body + pickle_assembler.REDUCE))
    return found


def bring_to_life(path: Path) -> str:
    """Loads the file in every way there is, and says how that ended."""
    try:
        with aoserial.open(path) as checkpoint:
            repr(checkpoint.tree)
            repr(checkpoint.report)
        repr(aoserial.load(path, strict=False))
        aoserial.plan(path)
        aoserial.verify(path, deep=True)
    except aoserial.AoserialError as error:
        return type(error).__name__
    return "inert"


def look_at(path: Path) -> str:
    """Opens the file, looks at all there is, and says how that ended."""
    try:
        with PickleFile.open(path) as file:
            for value in walk(file.tree):
                repr(value)
            list(named_tensors(file.tree, Limits()))
            repr(file.notes)
            with open_archive(path) as archive:
                repr(archive.catalog)
    except EXPECTED as error:
        return type(error).__name__
    return "inert"


def walk(root: object) -> list[object]:
    seen: dict[int, object] = {}
    waiting = [root]
    while waiting:
        value = waiting.pop()
        if id(value) not in seen:
            seen[id(value)] = value
            waiting.extend(children(value))
    return list(seen.values())


def main(folder: Path, everything: bool, look: Callable[[Path], str]) -> dict[str, object]:
    canary = folder / "canary"
    path = folder / "model.pt"
    fill_extension_cache()
    watch = Watch()
    watch.file = str(path)
    sys.addaudithook(watch)
    wrappers = list(containers.CONTAINERS.items())
    for _, wrap in wrappers:  # what a first use imports is not the payload's doing
        path.write_bytes(wrap(pickle_assembler.stream(pickle_assembler.NONE)))
        look(path)
        scan(path)
    bodies = payloads(str(canary))
    before = set(sys.modules)
    outcomes: Counter[str] = Counter()
    unflagged, count = [], 0
    for number, (name, body) in enumerate(bodies):
        stream = pickle_assembler.stream(body, protocol=number % 6, framed=number % 6 > 3)
        chosen = wrappers if everything else [wrappers[number % len(wrappers)]]
        for container, wrap in chosen:
            path.write_bytes(wrap(stream))
            watch.armed = True
            outcomes[look(path)] += 1
            report = scan(path)
            watch.armed = False
            count += 1
            if not report.runs_code or not any(f.risk is not Risk.KNOWN for f in report.findings):
                unflagged.append(f"{name} in {container}")
    modules = sorted(set(sys.modules) - before)
    return {
        "count": count,
        "outcomes": outcomes,
        "events": watch.events.most_common(20),
        "modules": modules,
        "executed": canary.exists() or (folder / "canary.d").exists(),
        "unflagged": unflagged[:20],
    }


if __name__ == "__main__":
    options = sys.argv[2:]
    look = bring_to_life if "alive" in options else look_at
    print(json.dumps(main(Path(sys.argv[1]), everything="all" in options, look=look)))
