"""All that a check looks at, gathered once."""

from __future__ import annotations

from dataclasses import dataclass

from aoserial.gate.code import Code
from aoserial.gate.frozen import Frozen
from aoserial.gate.goldens import Goldens
from aoserial.gate.rules import Mode
from aoserial.gate.witness import World


@dataclass(frozen=True, kw_only=True)
class Scene:
    """All that a check looks at.

    Attributes:
        code: what is declared now.
        frozen: the documents as they lie here.
        before, after: the program that the documents are, and the one that the code is.
        goldens: what golden files of these types show; None when nobody knows.
    """

    code: Code
    frozen: Frozen
    before: World
    after: World
    mode: Mode
    goldens: Goldens | None = None
