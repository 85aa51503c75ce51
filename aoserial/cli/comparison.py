"""What `aoserial diff` prints. Tensors that differ in the same fields share a line."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable
from typing import Any

from aoserial.checkpoint.comparing import (
    Comparison,
    FieldDifference,
    TensorDifference,
    ValueDifference,
)
from aoserial.cli.render import say


def show(found: Comparison) -> None:
    """Prints what differs, and a line on how many tensors do."""
    for path, names in ((found.left, found.only_left), (found.right, found.only_right)):
        for name in names:
            say(f"only in {path}: {name}")
    for line, members in _fields(found.differing).items():
        say(f"{_members(members)}: {line}")
    same = [one.name for one in found.differing if not (one.parts or one.values or one.note)]
    if same:
        say(f"{_members(same)}: the same values, bit for bit")
    for one in found.differing:
        for part, apart in one.parts.items():
            say(f"{one.name}: {part}: {_apart(apart)}")
        if one.values is not None:
            say(f"{one.name}: values: {_apart(one.values)}")
        elif one.note:
            say(f"{one.name}: values were not compared: {one.note}")
        elif one.parts:
            say(f"{one.name}: values: the same, bit for bit")
    say(
        f"{found.equal} tensors equal, {len(found.differing)} different, "
        f"{len(found.only_left)} only in A, {len(found.only_right)} only in B",
        bold=True,
    )


def as_json(found: Comparison) -> str:
    """The comparison as JSON, where an infinite difference is the text `inf`."""
    return json.dumps(_plain(dataclasses.asdict(found)), indent=2)


def _fields(differing: Iterable[TensorDifference]) -> dict[str, list[str]]:
    lines: dict[str, list[str]] = {}
    for one in differing:
        for field in one.fields:
            lines.setdefault(_spell(field), []).append(one.name)
    return lines


def _spell(field: FieldDifference) -> str:
    return f"{field.field}: {field.left} | {field.right}"


def _members(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} others"


def _apart(found: ValueDifference) -> str:
    if found.max_absolute is None:
        return f"{found.unequal} of {found.elements} codes differ"
    if not found.unequal:
        return "the same, though not in their bits"
    return (
        f"{found.unequal} of {found.elements} differ, by at most {found.max_absolute:.6g} "
        f"(relative {found.max_relative:.3g})"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return "inf" if value == math.inf else value
