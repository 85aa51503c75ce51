"""What a disk may hold after a power failure, from the calls of a run without one.

What was not yet synced may be there or not, each write and each change of a folder for itself. A
write may also be there in part: by pieces of 512 bytes, which disks write whole. Nothing more is
assumed of the file system: not that renaming waits for data, not that folders keep an order.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faults.running import Ended, Stage, Tally

from aoserial.storage.temporary import remove_left

_SECTOR = 512
_SAMPLES = 12  # random choices among many writes, beside the systematic ones
_ALL_OF = 6  # up to so many, every choice is tried


@dataclass
class _File:
    """A file as the disk has it, and what was written since."""

    content: bytearray = field(default_factory=bytearray)
    pending: list[tuple[int, bytes]] = field(default_factory=list)


@dataclass
class _Disk:
    """A folder as the disk has it, and what has become of it since."""

    names: dict[str, int]
    files: dict[int, _File]
    pending: list[tuple[str, str, int]] = field(default_factory=list)  # (what, name, file)

    def states(self, chance: random.Random) -> Iterator[dict[str, bytes]]:
        """Each folder that a power failure may leave now, as far as there are not too many."""
        dirty = [number for number, file in self.files.items() if file.pending]
        writes = [
            (number, offset, data)
            for number in dirty
            for start, whole in self.files[number].pending
            for offset, data in _sectors(start, whole)
        ]
        for changes in _choices(self.pending, chance):
            for kept in _choices(writes, chance):
                yield self._state(changes, kept)

    def _state(
        self, changes: Sequence[tuple[str, str, int]], kept: Sequence[tuple[int, int, bytes]]
    ) -> dict[str, bytes]:
        names = dict(self.names)
        for what, name, number in changes:
            if what == "link":
                names[name] = number
            elif names.get(name) == number:
                del names[name]
        contents = {number: bytearray(file.content) for number, file in self.files.items()}
        for number, offset, data in kept:
            content = contents[number]
            content.extend(bytes(max(0, offset + len(data) - len(content))))
            content[offset : offset + len(data)] = data
        return {name: bytes(contents[number]) for name, number in names.items()}


def _sectors(start: int, data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        step = _SECTOR - (start + at) % _SECTOR
        yield start + at, data[at : at + step]
        at += step


def _choices(items: Sequence[Any], chance: random.Random) -> Iterator[list[Any]]:
    """Which of them the disk may have: every choice of few; of many, beginnings, ends and some."""
    if len(items) <= _ALL_OF:
        for flags in itertools.product((False, True), repeat=len(items)):
            yield [item for item, flag in zip(items, flags, strict=True) if flag]
        return
    steps = range(0, len(items) + 1, max(1, len(items) // 16))
    for cut in steps:
        yield list(items[:cut])
        yield list(items[cut:])
    for _ in range(_SAMPLES):
        yield [item for item in items if chance.random() < 0.5]


def _play(stage: Stage, folder: Path, root: str) -> Iterator[tuple[_Disk, bool]]:
    """The disk after each call; and whether the run was over by then."""
    disk = _Disk({}, {})
    for path in sorted(folder.rglob("*")):
        if path.is_file() and not path.is_symlink():
            number = len(disk.files)
            disk.files[number] = _File(bytearray(path.read_bytes()))
            disk.names[str(path.relative_to(folder))] = number
    opened: dict[int, int | str] = {}  # descriptor → file, or folder
    current = dict(disk.names)  # as programs see it
    yield disk, False
    for position, (name, args, result) in enumerate(stage.log):
        if name == "open":
            path = os.path.relpath(args[0], root)
            if args[1] & os.O_CREAT:
                number = len(disk.files)
                disk.files[number] = _File()
                current[path] = number
                disk.pending.append(("link", path, number))
            opened[result] = current.get(path, path)
        elif name == "dup":
            opened[result] = opened[args[0]]
        elif name in ("pwrite", "copy_file_range"):
            disk.files[opened[args[0]]].pending.append((args[2], args[1][:result]))
        elif name == "posix_fallocate":
            disk.files[opened[args[0]]].pending.append((args[1] + args[2] - 1, b"\0"))
        elif name in ("fsync", "fdatasync"):
            _sync(disk, opened[args[0]])
        elif name in ("rename", "unlink"):
            path = os.path.relpath(args[0], root)
            number = current.pop(path)
            if name == "rename":
                target = os.path.relpath(args[1], root)
                current[target] = number
                disk.pending.append(("link", target, number))
            disk.pending.append(("unlink", path, number))
        yield disk, position == len(stage.log) - 1


def _sync(disk: _Disk, what: int | str) -> None:
    if isinstance(what, int):
        file = disk.files[what]
        for offset, data in file.pending:
            file.content.extend(bytes(max(0, offset + len(data) - len(file.content))))
            file.content[offset : offset + len(data)] = data
        file.pending.clear()
        return
    for change in [one for one in disk.pending if _is_in(one[1], what)]:
        disk.pending.remove(change)
        kind, name, number = change
        if kind == "link":
            disk.names[name] = number
        elif disk.names.get(name) == number:
            del disk.names[name]


def _is_in(name: str, folder: str) -> bool:
    return (os.path.dirname(name) or ".") == folder


def _collect(folders: list[Path]) -> None:
    """What a save does first; the save itself would take most of the time of all these states."""
    for folder in folders:
        remove_left(str(folder))


def sweep(stage: Stage, folder: Path) -> Tally:
    """Reads every state that a power failure may leave."""
    tally = Tally()
    chance = random.Random(1)
    seen: set[Any] = set()
    template = stage.fresh()
    links = {path: os.readlink(path) for path in template.rglob("*") if path.is_symlink()}
    times = {
        str(path.relative_to(template)): (path.stat().st_atime_ns, path.stat().st_mtime_ns)
        for path in template.rglob("*")
        if path.is_file()
    }
    for disk, over in _play(stage, template, stage.measured_in):
        for state in disk.states(chance):
            key = (tuple(sorted(state.items())), over)
            if key in seen:
                continue
            seen.add(key)
            for name, content in state.items():
                path = folder / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
                path.chmod(stage.mode_of(name))
                if name in times:
                    os.utime(path, ns=times[name])
            for path, target in links.items():
                os.symlink(target, folder / path.relative_to(template))
            folder.mkdir(exist_ok=True)
            ended = Ended("done" if over else "killed", hits=("power",))
            tally.add(stage.check(folder, ended, "power failure", _collect))
            shutil.rmtree(folder)
    shutil.rmtree(template)
    return tally
