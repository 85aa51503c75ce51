"""A process whose system calls go wrong where it is told to, and which writes down those it makes.

Python's own functions are replaced, so it works wherever Python does; see `tracing` for the real
calls.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

CALLS: dict[str, Any] = {
    "open": os, "close": os, "dup": os, "scandir": os, "posix_fallocate": os, "pwrite": os,
    "copy_file_range": os, "fchmod": os, "fsync": os, "fdatasync": os, "rename": os, "unlink": os,
    "flock": fcntl,
}  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """What goes wrong.

    Attributes:
        kind: `kill`, `interrupt`, `short` (half of what is to be written is), or an errno's name.
        when: at which call, from 1.
        lasting: at that and at all later ones.
    """

    kind: str
    when: int
    lasting: bool = False


@dataclass
class Seam:
    """The calls of this process, while it is `installed`.

    Attributes:
        log: of each call its name, arguments and result; of one that was hit, what hit it; the name
            of one that failed by itself begins with `failed`.
        hits: how often the fault was injected.
    """

    fault: Fault | None = None
    log: list[tuple[str, tuple[Any, ...], Any]] = field(default_factory=list)
    hits: list[str] = field(default_factory=list)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @contextmanager
    def installed(self) -> Iterator[None]:
        found = {name: getattr(CALLS[name], name) for name in CALLS if hasattr(CALLS[name], name)}
        for name, original in found.items():
            setattr(CALLS[name], name, self._replaced(name, original))
        try:
            yield
        finally:
            for name, original in found.items():
                setattr(CALLS[name], name, original)

    def _replaced(self, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            with self._lock:
                args = self._hit(name, args)
                before = _content(name, args, options)
                try:
                    result = original(*args, **options)
                except OSError:
                    self.log.append((f"failed {name}", before, None))
                    raise
                self.log.append((name, before, result if isinstance(result, int) else None))
                return result

        return call

    def _hit(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments to go on with, where the fault lets it go on."""
        fault, number = self.fault, len(self.log) + 1
        due = fault is not None and (
            number == fault.when or (fault.lasting and number > fault.when)
        )
        if fault is None or not due:
            return args
        if fault.kind == "short":
            if name != "pwrite" or len(args[1]) < 2:
                return args
            self.hits.append(name)
            return args[0], args[1][: len(args[1]) // 2], args[2]
        self.hits.append(name)
        if fault.kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        self.log.append((name, ("hit", fault.kind), None))
        if fault.kind == "interrupt":
            raise KeyboardInterrupt
        if name == "close":
            os.closerange(args[0], args[0] + 1)  # Linux has closed it, whatever it says of it
        code = getattr(errno, fault.kind)
        raise OSError(code, os.strerror(code))


def _content(name: str, args: tuple[Any, ...], options: dict[str, Any]) -> tuple[Any, ...]:
    """The arguments, with bytes copied: they are what a power failure may lose."""
    if name == "pwrite":
        return args[0], bytes(args[1]), args[2]
    if name == "copy_file_range":
        source, target, count = args
        return target, os.pread(source, count, options["offset_src"]), options["offset_dst"]
    return args
