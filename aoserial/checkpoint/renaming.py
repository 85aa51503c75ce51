"""Names of a checkpoint as the reader wants them: `load(rename=…)`. Torch-free."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

from aoserial.errors import (
    AoserialError,
    CollisionError,
    OptionError,
    UnknownNameError,
    raise_all,
)

# Exact names, or what makes a new name of an old one. Never a prefix or a pattern: what a rule
# does to names that its author did not think of is that author's to say, in a function.
Rename: TypeAlias = Mapping[str, str] | Callable[[str], str]


def new_names(
    present: Collection[str], wanted: Collection[str], rename: Rename | None
) -> dict[str, str]:
    """Name in the file → name in the result, of the wanted ones.

    Args:
        present: all names in the checkpoint, which a map may speak of.
        wanted: those that are read.

    Raises:
        UnknownNameError: a map names what the checkpoint does not have.
        OptionError: a new name is no string, or empty.
        CollisionError: two tensors get one name; `Faults` lists all that is wrong.
    """
    if rename is None:
        return {}
    faults: list[AoserialError] = []
    if isinstance(rename, Mapping):
        faults += [
            UnknownNameError("is renamed, and the checkpoint has no such tensor").locate(name=name)
            for name in rename
            if name not in present
        ]
        renamed = {name: rename.get(name, name) for name in wanted}
    elif callable(rename):
        renamed = {name: rename(name) for name in wanted}
    else:
        raise OptionError(f"rename must be a map or a function, not a {type(rename).__name__}")
    taken: dict[str, list[str]] = {}
    for name, new in renamed.items():
        if isinstance(new, str) and new:
            taken.setdefault(new, []).append(name)
        else:
            faults.append(OptionError(f"its new name is {new!r:.60}").locate(name=name))
    faults += [
        CollisionError(f"would be the name of {len(names)} tensors: {', '.join(names[:5])}").locate(
            name=new
        )
        for new, names in taken.items()
        if len(names) > 1
    ]
    raise_all(f"renaming is refused for {len(faults)} reasons", faults)
    return renamed
