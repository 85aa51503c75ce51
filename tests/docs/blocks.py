"""The fenced blocks of a Markdown file, and the marks that say how one is checked.

A mark is a comment on the line above the fence: `<!-- fragment: why -->` for Python that is part of
something and cannot run, which then has to compile; `<!-- not run: why -->` for commands that are
only held against those that exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

LANGUAGES = ("python", "console", "json", "toml", "yaml", "")
MARKS = {"python": "fragment", "console": "not run"}
_FENCE = re.compile(r"^( *)```(.*)$")
_MARK = re.compile(r"<!-- (.+?): (.+) -->")


@dataclass(frozen=True)
class Block:
    """One block.

    Attributes:
        language: behind the fence.
        line: of the opening fence, from 1.
        mark: what the comment above it says, without its reason; empty for none.
    """

    language: str
    text: str
    line: int
    mark: str = ""


def blocks(markdown: str) -> Iterator[Block]:
    """The blocks in order.

    Raises:
        ValueError: a fence that nothing closes, a language or a mark nobody knows.
    """
    lines = markdown.splitlines()
    start: int | None = None
    for number, line in enumerate(lines):
        if not (fence := _FENCE.match(line)):
            continue
        if start is None:
            start, language = number, fence[2].strip()
            if language not in LANGUAGES:
                raise ValueError(f"line {number + 1}: no check knows {language!r} blocks")
            continue
        mark = _mark(lines[start - 1] if start else "", language, start)
        yield Block(language, "\n".join(lines[start + 1 : number]) + "\n", start + 1, mark)
        start = None
    if start is not None:
        raise ValueError(f"line {start + 1}: the block is not closed")


def _mark(above: str, language: str, line: int) -> str:
    found = _MARK.fullmatch(above.strip())
    if not found:
        return ""
    if found[1] != MARKS.get(language):
        raise ValueError(f"line {line}: {found[1]!r} is no mark of a {language or 'plain'} block")
    return found[1]
