"""Symbolic shapes: what the shapes of a record's parts have to do with one another. Torch-free.

A rule is a tuple with one term a dimension, as `("...", "N", "K/2")`:

    N         a name: the same length wherever it stands
    K/2       that length divided, exactly
    K/group   the divisor may be an integer attribute of that name
    K/8/group several divisors, one after the other
    numel/2   the number of all elements, for a part that lies flat in their order; alone in a rule
    128       a number
    ...       in front: any leading dimensions, the same wherever it stands

or the one word `"blocks"`: the logical shape divided by the attribute `block_size`, rounded up, as
the scales of block quantization have it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from aoserial.errors import FieldError, SchemaError
from aoserial.schema.values import Value

Rule = tuple[str, ...]

BLOCKS: Rule = ("blocks",)
NUMEL = "numel"
_TERM = re.compile(r"(?P<number>\d+)|(?P<name>[A-Za-z_]\w*)(?P<divisors>(?:/\w+)*)")


def check_rule(rule: Rule) -> Rule:
    """`rule` if it is well formed, else `SchemaError`."""
    terms = rule[1:] if rule[:1] == ("...",) else rule
    for term in terms:
        if not _TERM.fullmatch(term):
            raise SchemaError(f"{term!r} is not a dimension")
        if term.partition("/")[0] == NUMEL and len(rule) > 1:
            raise SchemaError(f"{NUMEL} counts all elements, so {term!r} stands alone in a rule")
    return rule


def flat_divisors(rule: Rule | None) -> tuple[str, ...] | None:
    """The divisors of the rule of a part that lies flat, `numel/…`; None of any other rule."""
    if rule is None or len(rule) != 1:
        return None
    name, *divisors = rule[0].split("/")
    return tuple(divisors) if name == NUMEL else None


@dataclass
class ShapeMatch:
    """The shapes of one record's parts, held against their rules one after the other.

    Attributes:
        logical: the record's shape, for `blocks`.
        attributes: the record's, for divisors and `block_size`.
        lengths: of the names met so far.
    """

    logical: tuple[int, ...]
    attributes: Mapping[str, Value]
    lengths: dict[str, int | tuple[int, ...]] = field(default_factory=dict)

    def match(self, rule: Rule, shape: tuple[int, ...]) -> None:
        """Binds the names of `rule` to the lengths of `shape`.

        Raises:
            FieldError: a length that contradicts the rule or one met before.
        """
        if rule == BLOCKS:
            expected = blocks(self.logical, self.attributes)
            if shape != expected:
                size = _listed(self.attributes.get("block_size"))
                raise FieldError(
                    f"shape is {list(shape)}, expected {list(expected)}: "
                    f"{list(self.logical)} in blocks of {size}"
                )
            return
        open_ended = rule[:1] == ("...",)
        lead = len(shape) - len(rule) + 1 if open_ended else 0
        terms = rule[1:] if open_ended else rule
        if lead < 0 or len(shape) != lead + len(terms):
            raise _mismatch(rule, shape)
        bound = [self._bind(term, length) for term, length in zip(terms, shape[lead:], strict=True)]
        if open_ended:
            bound.append(self._agree("...", shape[:lead]))
        if wrong := next(filter(None, bound), ""):
            raise _mismatch(rule, shape, wrong)

    def _bind(self, term: str, length: int) -> str:
        """Binds one term; returns what contradicts it, empty when nothing does."""
        parsed = _TERM.fullmatch(term)
        assert parsed  # the rule was checked when it was declared
        if parsed["number"]:
            return "" if length == int(parsed["number"]) else f"{term}, not {length}"
        if parsed["name"] == NUMEL:
            self.lengths.setdefault(NUMEL, math.prod(self.logical))
        divisors = parsed["divisors"].split("/")[1:]
        return self._agree(parsed["name"], length * math.prod(map(self._divisor, divisors)))

    def _agree(self, name: str, length: int | tuple[int, ...]) -> str:
        known = self.lengths.setdefault(name, length)
        return "" if known == length else f"{name} = {_listed(known)}, not {_listed(length)}"

    def _divisor(self, text: str) -> int:
        if text.isdigit():
            return int(text)
        value = self.attributes.get(text)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise FieldError(f"attribute {text} is {value!r}, expected a positive integer")
        return value


def blocks(logical: tuple[int, ...], attributes: Mapping[str, Value]) -> tuple[int, ...]:
    """ceil(shape / block_size), dimension by dimension."""
    block = attributes.get("block_size")
    if not isinstance(block, tuple) or len(block) != len(logical):
        raise FieldError(
            f"block_size is {_listed(block)}, expected one length for each of "
            f"the {len(logical)} dimensions"
        )
    lengths = []
    for length, size in zip(logical, block, strict=True):
        if not isinstance(size, int) or not 1 <= size < 2**63:
            raise FieldError(f"block_size is {_listed(block)}, expected positive lengths")
        lengths.append(-(-length // size))
    return tuple(lengths)


def _mismatch(rule: Rule, shape: tuple[int, ...], reason: str = "") -> FieldError:
    found = f"shape is {list(shape)}, expected [{', '.join(rule)}]"
    return FieldError(f"{found} with {reason}" if reason else found)


def _listed(value: object) -> str:
    return str(list(value)) if isinstance(value, tuple) else str(value)
